/** The collector's stream of changes, kept open while somebody looks at the page. */
import type { Change } from './types'

export type Connection = 'connecting' | 'live' | 'lost' | 'paused'

/** Null: the stream was away; anything may have changed. */
type Listener = (change: Change | null) => void

// First wait after a loss, doubled up to the last: quick after a restart of the collector, gentle to one that is down.
const FIRST_WAIT_MS = 500
const LAST_WAIT_MS = 15_000

class Live {
  connection = $state<Connection>('connecting')
  /** When the next attempt is made, while the connection is lost (by this browser's clock). */
  retryAt = $state<number | null>(null)

  #listeners = new Set<Listener>()
  #source: EventSource | null = null
  #wait = FIRST_WAIT_MS
  #timer: ReturnType<typeof setTimeout> | undefined
  #missed = false

  subscribe(listener: Listener): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  start(): () => void {
    // A hidden tab lets go of its connection: browsers allow six to a host, and a wall of tabs would starve itself.
    const visibility = (): void => {
      if (document.visibilityState === 'hidden') this.#pause()
      else if (!this.#source) this.#open()
    }
    document.addEventListener('visibilitychange', visibility)
    this.#open()
    return () => {
      document.removeEventListener('visibilitychange', visibility)
      this.#close()
    }
  }

  #open(): void {
    clearTimeout(this.#timer)
    this.retryAt = null
    this.connection = 'connecting'
    const source = new EventSource('/api/v1/events')
    this.#source = source
    source.onopen = () => {
      this.connection = 'live'
      this.#wait = FIRST_WAIT_MS
      if (this.#missed) this.#tell(null)
      this.#missed = false
    }
    source.addEventListener('change', (event) => {
      try {
        this.#tell(JSON.parse((event as MessageEvent<string>).data) as Change)
      } catch {
        // An event this page does not understand: fetching everything again is right whatever it said.
        this.#tell(null)
      }
    })
    source.onerror = () => {
      this.#close()
      this.connection = 'lost'
      this.retryAt = Date.now() + this.#wait
      this.#timer = setTimeout(() => this.#open(), this.#wait)
      this.#wait = Math.min(this.#wait * 2, LAST_WAIT_MS)
    }
  }

  #pause(): void {
    this.#close()
    this.connection = 'paused'
  }

  #close(): void {
    clearTimeout(this.#timer)
    this.#source?.close()
    this.#source = null
    this.#missed = true
  }

  #tell(change: Change | null): void {
    for (const listener of this.#listeners) listener(change)
  }
}

export const live = new Live()

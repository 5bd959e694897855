/** Something fetched that is fetched again when the collector says that it changed. */
import { onDestroy } from 'svelte'
import { coalesce } from '../coalesce'
import { ApiError } from './client'
import { live } from './live.svelte'
import type { Change } from './types'

// No more than two fetches a second, and never more than a tenth of the time for one that is slow (10,000 ranks).
const pause = (took: number): number => Math.max(500, 9 * took)

// How soon to try again by itself while the collector fails; a change or a reconnect tries at once.
const RETRY_MS = 5000

export class Resource<T> {
  data = $state.raw<T | undefined>(undefined)
  /** The last failure; null again after a success. Older data stays on the page beside it. */
  error = $state.raw<ApiError | null>(null)

  #abort = new AbortController()
  #work
  #retry: ReturnType<typeof setTimeout> | undefined

  /** Made while a component is set up, and gone with it. `concerns`: which changes make it fetch again. */
  constructor(load: (signal: AbortSignal) => Promise<T>, concerns: (change: Change) => boolean) {
    this.#work = coalesce(async () => {
      clearTimeout(this.#retry)
      try {
        this.data = await load(this.#abort.signal)
        this.error = null
      } catch (error) {
        if (this.#abort.signal.aborted) return
        this.error =
          error instanceof ApiError ? error : new ApiError(0, 'unreadable', `The answer could not be read: ${String(error)}`, null)
        // What is not there comes with a change; asking again and again would not bring it.
        if (this.error.status === 0 || this.error.status >= 500) this.#retry = setTimeout(() => this.refresh(), RETRY_MS)
      }
    }, pause)
    const unsubscribe = live.subscribe((change) => {
      if (change === null || concerns(change)) this.refresh()
    })
    this.refresh()
    onDestroy(() => {
      unsubscribe()
      this.#abort.abort()
      this.#work.stop()
      clearTimeout(this.#retry)
    })
  }

  /** Nothing to show yet and no failure either. */
  get loading(): boolean {
    return this.data === undefined && this.error === null
  }

  refresh(): void {
    this.#work.request()
  }
}

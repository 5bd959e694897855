/** Many requests for the same work become few: one at a time, with a pause between, and one more if asked meanwhile. */

export interface Coalesced {
  /** Ask for the work to be done once more. */
  request(): void
  stop(): void
}

/**
 * `work` runs at once on the first request, then no sooner than `pause` after it ended; `pause` is told how long it
 * took (milliseconds), so that an expensive answer is asked for less often.
 */
export function coalesce(work: () => Promise<void>, pause: (took: number) => number): Coalesced {
  let busy = false
  let again = false
  let stopped = false
  let timer: ReturnType<typeof setTimeout> | undefined

  async function run(): Promise<void> {
    busy = true
    again = false
    const began = performance.now()
    await work()
    if (stopped) return
    timer = setTimeout(() => {
      busy = false
      if (again) void run()
    }, pause(performance.now() - began))
  }

  return {
    request() {
      again = true
      if (!busy && !stopped) void run()
    },
    stop() {
      stopped = true
      clearTimeout(timer)
    },
  }
}

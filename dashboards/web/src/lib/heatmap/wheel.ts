/** A turn of the wheel belongs to where it began: scrolling down a page does not stop at the heat map and zoom it. */

// Two turns closer together than this (milliseconds) are one gesture; the inertia of a touchpad included.
const GESTURE_MS = 250

class WheelOwner {
  #last = -Infinity
  #map = false

  constructor() {
    addEventListener('wheel', (event) => this.#note(event.timeStamp, event.defaultPrevented), { passive: true })
  }

  /** Whether the map takes this turn. `wanted`: the map has the focus, so the page was not meant. */
  takes(event: WheelEvent, wanted: boolean): boolean {
    if (event.ctrlKey || event.metaKey || wanted) return true
    return this.#map || event.timeStamp - this.#last > GESTURE_MS
  }

  #note(at: number, taken: boolean): void {
    this.#last = at
    this.#map = taken
  }
}

export const wheelOwner = new WheelOwner()

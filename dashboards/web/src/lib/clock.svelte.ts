/** One clock for every relative time on the page, by the collector's time. */
import { clockSkew } from './api/client'

class Clock {
  now = $state(Date.now())

  start(): () => void {
    const timer = setInterval(() => (this.now = Date.now() + clockSkew), 1000)
    return () => clearInterval(timer)
  }
}

export const time = new Clock()

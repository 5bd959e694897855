/** The browser's history as state: real URLs, no hash. */
import { parse, type Route } from './routes'

function read(): Route {
  return parse(location.pathname, location.search)
}

class Router {
  route = $state.raw<Route>(read())
  /** Changes with every page shown, also with the same one shown again after Back. */
  key = $state(location.pathname + location.search)

  /** The page above, where the URL alone does not tell it: an alert's run. */
  up: string | null = null

  start(): () => void {
    const back = (): void => this.#show()
    const click = (event: MouseEvent): void => {
      if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return
      const link = event.target instanceof Element ? event.target.closest('a') : null
      if (!link || link.target || link.hasAttribute('download') || link.origin !== location.origin) return
      if (link.hash && link.pathname === location.pathname) return
      event.preventDefault()
      this.go(link.pathname + link.search)
    }
    addEventListener('popstate', back)
    document.addEventListener('click', click)
    return () => {
      removeEventListener('popstate', back)
      document.removeEventListener('click', click)
    }
  }

  go(url: string): void {
    if (url === location.pathname + location.search) return
    history.pushState(null, '', url)
    this.#show()
    scrollTo(0, 0)
  }

  #show(): void {
    this.up = null
    this.route = read()
    this.key = location.pathname + location.search
  }
}

export const router = new Router()

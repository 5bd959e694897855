/** The system's theme, or the one that was chosen here. public/theme.js applies it before the first paint. */
type Choice = 'system' | 'light' | 'dark'

const KEY = 'ctx-tracer.theme'
const system = matchMedia('(prefers-color-scheme: dark)')

class Theme {
  choice = $state<Choice>((document.documentElement.dataset['theme'] as Choice | undefined) ?? 'system')
  #systemDark = $state(system.matches)
  dark = $derived(this.choice === 'system' ? this.#systemDark : this.choice === 'dark')

  start(): () => void {
    const follow = (): void => void (this.#systemDark = system.matches)
    system.addEventListener('change', follow)
    return () => system.removeEventListener('change', follow)
  }

  /** To the other of dark and light; what the system would show anyway is not kept. */
  toggle(): void {
    const dark = !this.dark
    this.choice = dark === this.#systemDark ? 'system' : dark ? 'dark' : 'light'
    if (this.choice === 'system') delete document.documentElement.dataset['theme']
    else document.documentElement.dataset['theme'] = this.choice
    try {
      if (this.choice === 'system') localStorage.removeItem(KEY)
      else localStorage.setItem(KEY, this.choice)
    } catch {
      // Storage is off: the choice lasts as long as the page.
    }
  }
}

export const theme = new Theme()

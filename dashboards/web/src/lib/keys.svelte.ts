/** Keys that work anywhere on the page. Tables and filters announce themselves while they are shown. */
import { parent } from './routes'
import { router } from './router.svelte'

export interface KeyTable {
  element: HTMLElement
  /** Move to the next (+1) or previous (-1) row. */
  move(by: number): void
}

const tables: KeyTable[] = []
const filters: HTMLInputElement[] = []

export const help = $state({ open: false })

export const KEYS: readonly [string, string][] = [
  ['/', 'filter the list'],
  ['j  k', 'next, previous row of a table'],
  ['Enter', 'open the row, or the cell of the heat map'],
  ['Esc', 'close, clear the filter, or go one page up'],
  ['t', 'dark or light'],
  ['?', 'these keys'],
]

export const MAP_KEYS: readonly [string, string][] = [
  ['← ↑ → ↓', 'move by one cell'],
  ['n  p', 'next, previous finding'],
  ['+  −  0', 'closer, farther, everything'],
  ['PgUp  PgDn', 'a screenful of ranks'],
  ['Home  End', 'first, last region'],
  ['Enter', 'the alert, or the region’s spans'],
]

export function addTable(table: KeyTable): () => void {
  tables.push(table)
  return () => void tables.splice(tables.indexOf(table), 1)
}

export function addFilter(input: HTMLInputElement): () => void {
  filters.push(input)
  return () => void filters.splice(filters.indexOf(input), 1)
}

function typing(target: EventTarget | null): target is HTMLElement {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
}

function escape(target: EventTarget | null): void {
  if (typing(target)) {
    const input = target as HTMLInputElement
    if (input.value) {
      input.value = ''
      input.dispatchEvent(new Event('input', { bubbles: true }))
    } else input.blur()
    return
  }
  const up = router.up ?? parent(router.route)
  if (up) router.go(up)
}

export function onKey(event: KeyboardEvent, toggleTheme: () => void): void {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return
  // An open dialog closes itself on Esc and keeps every other key.
  if (document.querySelector('dialog[open]')) return
  if (event.key === 'Escape') return escape(event.target)
  if (typing(event.target)) return
  switch (event.key) {
    case '/':
      filters.at(-1)?.focus()
      break
    case '?':
      help.open = true
      break
    case 't':
      toggleTheme()
      break
    case 'j':
    case 'k':
      ;(tables.find((table) => table.element.contains(document.activeElement)) ?? tables[0])?.move(event.key === 'j' ? 1 : -1)
      break
    default:
      return
  }
  event.preventDefault()
}

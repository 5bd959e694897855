/** Captured, produced and served side by side: which facts there are, which differ, and where within a value. */
import type { Alert, Facts } from './api/types'

/** The order of docs/report.md; facts of a later version follow in their own. */
const ORDER = [
  'name',
  'type_name',
  'shape',
  'local_shape',
  'dtype',
  'strides',
  'placements',
  'process_mesh',
  'place',
  'initialized',
  'stop_gradient',
  'has_grad',
  'has_main_grad',
  'inplace_version',
]

export const SIDES = ['captured', 'produced', 'served'] as const
export type Side = (typeof SIDES)[number]

export interface Token {
  text: string
  changed: boolean
}

export interface Cell {
  /** Null: not observed. */
  tokens: Token[] | null
  /** Differs from what was captured. */
  changed: boolean
}

export interface FactRow {
  fact: string
  /** "rule": one of the facts the rule fired on. "also": another that differs. Null: the same wherever observed. */
  differs: 'rule' | 'also' | null
  cells: Record<Side, Cell>
}

function same(a: unknown, b: unknown): boolean {
  return JSON.stringify(a) === JSON.stringify(b)
}

function scalar(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? 'null')
}

/** A value as tokens that join to what is shown; in a list only the elements that differ are marked. */
export function tokens(value: unknown, before: unknown): Token[] {
  if (!Array.isArray(value)) return [{ text: scalar(value), changed: before !== undefined && !same(value, before) }]
  const old = Array.isArray(before) ? before : null
  const wholly = before !== undefined && (!old || old.length !== value.length)
  const list: Token[] = [{ text: '[', changed: wholly }]
  value.forEach((element, i) => {
    if (i) list.push({ text: ', ', changed: wholly })
    list.push({ text: scalar(element), changed: wholly || (old !== null && !same(element, old[i])) })
  })
  list.push({ text: ']', changed: wholly })
  return merged(list)
}

function cell(facts: Facts | null, fact: string, captured: Facts | null): Cell {
  if (!facts || facts[fact] === undefined || facts[fact] === null) return { tokens: null, changed: false }
  const before = facts === captured ? undefined : (captured?.[fact] ?? undefined)
  return { tokens: tokens(facts[fact], before), changed: before !== undefined && !same(facts[fact], before) }
}

type Compared = Pick<Alert, 'captured' | 'produced' | 'served' | 'differs'>

/** Neighbours that are both marked, or both not, become one: a mark over `[0]`, not over `[`, `0` and `]`. */
function merged(list: Token[]): Token[] {
  const out: Token[] = []
  for (const token of list) {
    const last = out.at(-1)
    if (last && last.changed === token.changed) out[out.length - 1] = { ...last, text: last.text + token.text }
    else out.push(token)
  }
  return out
}

/** One row per fact that any side knows or the rule names, in a fixed order. */
export function compare(alert: Compared): FactRow[] {
  const known = new Set([...SIDES.flatMap((side) => Object.keys(alert[side] ?? {})), ...alert.differs])
  const rest = [...known].filter((fact) => !ORDER.includes(fact)).sort()
  return [...ORDER.filter((fact) => known.has(fact)), ...rest].map((fact) => {
    const cells = {
      captured: cell(alert.captured, fact, alert.captured),
      produced: cell(alert.produced, fact, alert.captured),
      served: cell(alert.served, fact, alert.captured),
    }
    const moved = cells.produced.changed || cells.served.changed
    return { fact, differs: alert.differs.includes(fact) ? 'rule' : moved ? 'also' : null, cells }
  })
}

/** What a cell says, as one string. */
export function cellText(cell: Cell): string {
  return cell.tokens ? cell.tokens.map((token) => token.text).join('') : 'not observed'
}

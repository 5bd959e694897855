/** Capture and replay spans, read for people (names: docs/telemetry.md). */
import type { Span } from './api/types'
import type { State } from './severity'

export interface Slot {
  index: number
  name: string
  shape: string
  dtype: string
  initialized: string
  hasGrad: string
  stopGradient: string
  placements: string
  mesh: string
}

const COLUMNS: Record<Exclude<keyof Slot, 'index'>, string> = {
  name: 'ctx.slot.name',
  shape: 'ctx.slot.shape',
  dtype: 'ctx.slot.dtype',
  initialized: 'ctx.slot.initialized',
  hasGrad: 'ctx.slot.has_grad',
  stopGradient: 'ctx.slot.stop_gradient',
  placements: 'ctx.slot.placements',
  mesh: 'ctx.slot.process_mesh',
}

// A region saves tens of slots; a hostile span may claim millions.
const MOST_SLOTS = 512

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : []
}

/** The saved tensors of a span, one a row; "" for a fact that it does not tell. */
export function slots(span: Span): Slot[] {
  const columns = Object.entries(COLUMNS).map(([key, attribute]) => [key, list(span.attributes[attribute])] as const)
  const length = Math.min(MOST_SLOTS, Math.max(0, ...columns.map(([, values]) => values.length)))
  return Array.from({ length }, (_, index) => ({
    index,
    ...(Object.fromEntries(columns.map(([key, values]) => [key, values[index] === undefined || values[index] === null ? '' : String(values[index])])) as Omit<Slot, 'index'>),
  }))
}

export function isReplay(span: Span): boolean {
  return span.name === 'recompute replay'
}

export function verdictOf(span: Span): State | null {
  const verdict = span.attributes['ctx.region.verdict']
  if (verdict === 'mismatch') return 'error'
  return verdict === 'match' || verdict === 'undecided' ? verdict : null
}

export function text(span: Span, attribute: string): string | null {
  const value = span.attributes[attribute]
  return value === null || value === undefined ? null : String(value)
}

export function seconds(span: Span): number {
  return (Date.parse(span.ended_at) - Date.parse(span.started_at)) / 1000
}

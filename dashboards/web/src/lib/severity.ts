/** The states a cell, a run or a rank can be in: byte of the heat map, sign, words. Colours are in app.css. */
import type { Severity, Verdict } from './api/types'

export type State = 'unseen' | 'match' | 'info' | 'undecided' | 'warning' | 'error'

/** By the heat map's byte. The order is also the order of gravity: the larger byte is the worse one. */
export const STATES: readonly State[] = ['unseen', 'match', 'info', 'undecided', 'warning', 'error']

export const MATCH = 1

export const LABELS: Record<State, string> = {
  unseen: 'not seen',
  match: 'match',
  info: 'info',
  undecided: 'undecided',
  warning: 'warning',
  error: 'error',
}

/** Drawn beside or inside the colour, so that colour is never the only sign. */
export const SIGNS: Record<State, string> = {
  unseen: '–',
  match: '✓',
  info: 'i',
  undecided: '?',
  warning: '!',
  error: '×',
}

export const SEVERITIES: readonly Severity[] = ['error', 'warning', 'info']

export function stateOf(byte: number): State {
  return STATES[byte] ?? 'unseen'
}

/** The colour a verdict speaks in; a mismatch has that of the worst alert that is firing. */
export function verdictState(verdict: Verdict, alerts: Record<Severity, number>): State {
  if (verdict !== 'mismatch') return verdict
  return alerts.error > 0 || alerts.warning === 0 ? 'error' : 'warning'
}

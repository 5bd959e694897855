/** How a rank ended, and which ranks to look at first. */
import type { Rank } from './api/types'

export function exitPhrase(rank: Pick<Rank, 'exit' | 'status'>): string {
  if (!rank.exit) return rank.status === 'running' ? '–' : 'not seen'
  if (rank.exit.signal) return rank.exit.signal
  return rank.exit.code === null ? 'not known' : `exit ${rank.exit.code}`
}

function gravity(rank: Rank): number {
  if (rank.exit && (rank.exit.signal || rank.exit.code)) return 4
  if (rank.severity === 'error') return 3
  if (rank.status === 'silent' || rank.severity === 'warning') return 2
  return rank.severity === 'info' ? 1 : 0
}

/** Dead ranks, then those with errors, then silent ones; by number where equal. */
export function worstFirst(ranks: readonly Rank[]): Rank[] {
  return ranks.toSorted((a, b) => gravity(b) - gravity(a) || a.rank - b.rank)
}

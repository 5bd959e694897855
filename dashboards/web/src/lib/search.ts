/** What the filter boxes match: every word, anywhere, in any case. */
import type { Rank, RunSummary } from './api/types'

function matches(text: string, filter: string): boolean {
  const folded = text.toLowerCase()
  return filter
    .toLowerCase()
    .split(/\s+/)
    .every((word) => folded.includes(word))
}

export function matchesRun(run: RunSummary, filter: string): boolean {
  if (!filter.trim()) return true
  const text = [run.run, run.sentence, run.status, run.verdict, run.paddle_version ?? '', run.command.join(' ')]
  return matches(text.join('\n'), filter)
}

/** A number alone is a rank, so that "3" does not find rank 13. */
export function matchesRank(rank: Rank, filter: string): boolean {
  const wanted = filter.trim()
  if (!wanted) return true
  if (/^\d+$/.test(wanted)) return rank.rank === Number(wanted)
  const exit = rank.exit ? (rank.exit.signal ?? `exit ${rank.exit.code}`) : ''
  return matches([rank.host ?? '', rank.status, rank.severity ?? '', exit].join('\n'), filter)
}

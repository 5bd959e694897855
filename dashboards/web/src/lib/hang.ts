/** The evidence of a CT301 alert (docs/report.md), read from what the wire brought: a field that is not as it should be is left out. */

export interface Wait {
  rank: number
  what: string
  at: string | null
  region: string | null
  since: string | null
  awaits: number[]
}

export interface Awaited {
  rank: number
  does: string
  at: string | null
  root: boolean
}

export interface Standing {
  rank: number
  pid: number | null
  does: string
  at: string | null
  last: string
  since: string | null
  cpu: number | null
}

export interface Stack {
  ranks: number[]
  thread: string
  frames: string[]
}

export interface Hang {
  waiting: Wait[]
  awaited: Awaited[]
  ranks: Standing[]
  stacks: Stack[]
  noStacks: string[]
}

type Key =
  | 'at' | 'awaited' | 'changed_ns' | 'cpu_seconds' | 'does' | 'for' | 'frames' | 'in' | 'last' | 'no_stacks' | 'pid'
  | 'rank' | 'ranks' | 'region' | 'root' | 'since_ns' | 'stacks' | 'thread' | 'waiting'
type Fields = Partial<Record<Key, unknown>>

const text = (value: unknown): string => (typeof value === 'string' ? value : '')
const textOrNull = (value: unknown): string | null => (typeof value === 'string' && value ? value : null)
const numberOrNull = (value: unknown): number | null => (typeof value === 'number' && Number.isFinite(value) ? value : null)
const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : [])
const numbers = (value: unknown): number[] => list(value).filter((one) => typeof one === 'number')
const texts = (value: unknown): string[] => list(value).filter((one) => typeof one === 'string')

function withRank(value: unknown): (Fields & { rank: number })[] {
  return list(value).filter(
    (one): one is Fields & { rank: number } => typeof one === 'object' && one !== null && typeof (one as Fields).rank === 'number',
  )
}

/** Nanoseconds since 1970 as the ISO time that the page tells ages of. */
function iso(value: unknown): string | null {
  const at = numberOrNull(value)
  return at === null || Math.abs(at) > 8.64e21 ? null : new Date(at / 1e6).toISOString()
}

export function hangOf(detail: Fields): Hang {
  return {
    waiting: withRank(detail.waiting).map((one) => ({
      rank: one.rank,
      what: text(one.in),
      at: textOrNull(one.at),
      region: textOrNull(one.region),
      since: iso(one.since_ns),
      awaits: numbers(one.for),
    })),
    awaited: withRank(detail.awaited)
      .map((one) => ({ rank: one.rank, does: text(one.does), at: textOrNull(one.at), root: one.root === true }))
      .sort((a, b) => Number(b.root) - Number(a.root) || a.rank - b.rank),
    ranks: withRank(detail.ranks).map((one) => ({
      rank: one.rank,
      pid: numberOrNull(one.pid),
      does: text(one.does),
      at: textOrNull(one.at),
      last: text(one.last),
      since: iso(one.changed_ns),
      cpu: numberOrNull(one.cpu_seconds),
    })),
    stacks: list(detail.stacks)
      .filter((one): one is Fields => typeof one === 'object' && one !== null)
      .map((one) => ({ ranks: numbers(one.ranks), thread: text(one.thread), frames: texts(one.frames) })),
    noStacks: texts(detail.no_stacks),
  }
}

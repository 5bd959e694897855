/** What the collector answers (docs/api.md). Field names are the wire's. */

export type Severity = 'info' | 'warning' | 'error'
export type Verdict = 'match' | 'undecided' | 'mismatch'
export type RunStatus = 'running' | 'silent' | 'ended' | 'failed'

export interface RunSummary {
  run: string
  attempt: number
  status: RunStatus
  verdict: Verdict
  sentence: string
  started_at: string
  last_seen_at: string
  ended_at: string | null
  world_size: number | null
  ranks_seen: number
  step: number | null
  paddle_version: string | null
  command: string[]
  /** Firing alerts. */
  alerts: Record<Severity, number>
  /** What the tracer itself lost: count by reason. */
  dropped: Record<string, number>
}

export interface RankExit {
  code: number | null
  signal: string | null
}

export interface Rank {
  rank: number
  pid: number | null
  host: string | null
  step: number | null
  last_seen_at: string
  /** When it last did anything; null where its daemon did not say. */
  progress_at: string | null
  /** What the program has declared that it is doing. */
  phase: string | null
  status: RunStatus
  /** Null where the end was not seen. */
  exit: RankExit | null
  /** Worst that is firing for this rank. */
  severity: Severity | null
  own_seconds: number | null
}

export interface Coverage {
  regions_captured: number
  regions_replayed: number
  slots_compared: number
}

export interface Run extends RunSummary {
  ranks: Rank[]
  attempts: number[]
  coverage: Coverage
}

export interface HeatRegion {
  name: string
  mode: string
  source: string | null
}

export interface HeatMap {
  ranks: number[]
  regions: HeatRegion[]
  /** Base64 of ranks.length * regions.length bytes, a row a rank (lib/heatmap/grid.ts). */
  cells: string
}

export interface Step {
  step: number
  ranks: number
  regions_captured: number
  regions_replayed: number
  slots_compared: number
  findings: number
  /** Of the last rank; null for a step under way. */
  ended_at: string | null
  own_seconds: number | null
}

export interface Span {
  name: string
  rank: number
  step: number | null
  started_at: string
  ended_at: string
  attributes: Record<string, unknown>
}

/** What is known of a tensor without its values; a fact that was not read is absent. */
export type Facts = Record<string, unknown>

export interface Region {
  name: string
  ordinal: number
  source: string | null
  mode: string
}

export interface KnownIssue {
  id: string
  title: string
  url: string | null
  fixed_in: string | null
}

export interface Alert {
  fingerprint: string
  run: string
  attempt: number
  state: 'firing' | 'resolved'
  rule: string
  slug: string
  severity: Severity
  title: string
  meaning: string
  cause: string | null
  remedy: string | null
  message: string
  ranks: number[]
  processes: number[]
  region: Region | null
  slot: number | null
  tensor: { name?: string | null; layer?: string | null; role?: string | null } | null
  step: { first: number | null; last: number | null }
  last_clean_step: number | null
  micro_batch: number | null
  count: number
  captured: Facts | null
  produced: Facts | null
  served: Facts | null
  differs: string[]
  known_issue: KnownIssue | null
  detail: Record<string, unknown>
  first_seen_at: string
  last_seen_at: string
  resolved_at: string | null
}

export interface Rule {
  id: string
  slug: string
  severity: Severity
  title: string
  meaning: string
  cause: string | null
  remedy: string | null
  /** A minimal snippet that shows it. */
  example?: string | null
}

export interface Change {
  kind: 'run' | 'alert'
  run: string
  fingerprint?: string | null
}

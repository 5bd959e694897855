/** The collector's REST interface. Every failure, also of the network, is an ApiError that says what to do. */
import type { Alert, HeatMap, Rule, Run, RunSummary, Span, Step } from './types'
import { segment } from '../routes'

export class ApiError extends Error {
  constructor(
    /** HTTP status; 0 when there was no answer. */
    readonly status: number,
    readonly code: string,
    message: string,
    readonly remedy: string | null,
  ) {
    super(message)
  }
}

/** Milliseconds the collector's clock is ahead of this browser's. Ages are told by the collector's clock. */
export let clockSkew = 0

async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  let response: Response
  try {
    response = await fetch(path, { headers: { accept: 'application/json' }, ...(signal ? { signal } : {}) })
  } catch (error) {
    if (signal?.aborted) throw error
    throw new ApiError(0, 'unreachable', 'The collector does not answer.', 'Check that `ctx-tracer serve` is running; this page tries again by itself.')
  }
  const date = Date.parse(response.headers.get('date') ?? '')
  // The header has whole seconds: below two of them it says nothing.
  if (!Number.isNaN(date)) clockSkew = Math.abs(date - Date.now()) < 2000 ? 0 : date - Date.now()
  if (!response.ok) throw await failure(response)
  return (await response.json()) as T
}

async function failure(response: Response): Promise<ApiError> {
  let body: { error?: { code?: string; message?: string; remedy?: string | null } } = {}
  try {
    body = await response.json()
  } catch {
    // Not the collector's own words (a proxy's page, say): the status is all there is.
  }
  const error = body.error ?? {}
  return new ApiError(
    response.status,
    error.code ?? `http_${response.status}`,
    error.message ?? `The collector answered ${response.status} ${response.statusText}`.trim() + '.',
    error.remedy ?? null,
  )
}

function query(parameters: Record<string, string | number | null | undefined>): string {
  const search = new URLSearchParams()
  for (const [key, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined) search.set(key, String(value).toWellFormed())
  }
  const text = search.toString()
  return text ? `?${text}` : ''
}

type Attempt = number | null

/** Runs and alerts that a page asks for; it says so where there may be more. */
export const MOST_RUNS = 500
export const MOST_ALERTS = 1000

const run = (id: string): string => `/api/v1/runs/${segment(id)}`

export const api = {
  version: (signal?: AbortSignal) => get<{ version: string }>('/api/v1/version', signal),
  runs: async (signal?: AbortSignal) => (await get<{ runs: RunSummary[] }>(`/api/v1/runs${query({ limit: MOST_RUNS })}`, signal)).runs,
  run: (id: string, attempt: Attempt, signal?: AbortSignal) => get<Run>(run(id) + query({ attempt }), signal),
  heatmap: (id: string, attempt: Attempt, signal?: AbortSignal) =>
    get<HeatMap>(`${run(id)}/heatmap${query({ attempt })}`, signal),
  steps: async (id: string, attempt: Attempt, signal?: AbortSignal) =>
    (await get<{ steps: Step[] }>(`${run(id)}/steps${query({ attempt, limit: 200 })}`, signal)).steps,
  spans: async (
    id: string,
    filter: { attempt: Attempt; region: string; rank: number | null; step: number | null; limit: number },
    signal?: AbortSignal,
  ) => (await get<{ spans: Span[] }>(`${run(id)}/spans${query(filter)}`, signal)).spans,
  alerts: async (id: string, attempt: Attempt, signal?: AbortSignal) =>
    (await get<{ alerts: Alert[] }>(`/api/v1/alerts${query({ run: id, attempt, limit: MOST_ALERTS })}`, signal)).alerts,
  alert: (fingerprint: string, signal?: AbortSignal) =>
    get<Alert>(`/api/v1/alerts/${segment(fingerprint)}`, signal),
  rules: async (signal?: AbortSignal) => (await get<{ rules: Rule[] }>('/api/v1/rules', signal)).rules,
}

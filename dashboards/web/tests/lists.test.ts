import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { alertText } from '../src/lib/alertText'
import type { Alert, Rank, RunSummary, Span, Step } from '../src/lib/api/types'
import { coalesce } from '../src/lib/coalesce'
import { exitPhrase, worstFirst } from '../src/lib/ranks'
import { matchesRank, matchesRun } from '../src/lib/search'
import { verdictState } from '../src/lib/severity'
import { slots } from '../src/lib/spans'
import { overhead, timed } from '../src/lib/steps'

const rank = (n: number, fields: Partial<Rank> = {}): Rank => ({
  rank: n, pid: 1, host: 'gpu-001', step: 1, last_seen_at: '', progress_at: null, phase: null, status: 'running', exit: null, severity: null, own_seconds: null, ...fields,
})

describe('ranks', () => {
  it('come worst first, then by number', () => {
    const ranks = [rank(0), rank(1, { severity: 'info' }), rank(2, { severity: 'error' }), rank(3, { exit: { code: null, signal: 'SIGSEGV' } }), rank(4)]
    expect(worstFirst(ranks).map((one) => one.rank)).toEqual([3, 2, 1, 0, 4])
  })
  it('say how they ended', () => {
    expect(exitPhrase(rank(0))).toBe('–')
    expect(exitPhrase(rank(0, { status: 'silent' }))).toBe('not seen')
    expect(exitPhrase(rank(0, { exit: { code: 1, signal: null } }))).toBe('exit 1')
    expect(exitPhrase(rank(0, { exit: { code: -11, signal: 'SIGSEGV' } }))).toBe('SIGSEGV')
  })
  it('are found by their number alone, or by words', () => {
    expect(matchesRank(rank(13), '3')).toBe(false)
    expect(matchesRank(rank(3), ' 3 ')).toBe(true)
    expect(matchesRank(rank(3, { exit: { code: null, signal: 'SIGSEGV' } }), 'sigsegv GPU')).toBe(true)
  })
})

it('runs are found by every word of the filter', () => {
  const run = { run: 'nightly-7', sentence: 'Healthy', status: 'running', verdict: 'match', paddle_version: '3.3.1', command: ['python', 'train.py'] } as unknown as RunSummary
  expect(matchesRun(run, 'NIGHTLY train')).toBe(true)
  expect(matchesRun(run, 'nightly failed')).toBe(false)
  expect(matchesRun(run, '  ')).toBe(true)
})

it('a mismatch speaks in the colour of its worst alert', () => {
  expect(verdictState('mismatch', { error: 0, warning: 1, info: 4 })).toBe('warning')
  expect(verdictState('mismatch', { error: 0, warning: 0, info: 0 })).toBe('error')
  expect(verdictState('undecided', { error: 1, warning: 0, info: 0 })).toBe('undecided')
})

describe('steps', () => {
  const step = (n: number, second: number, own: number | null = 0.001): Step =>
    ({ step: n, ended_at: new Date(second * 1000).toISOString(), own_seconds: own }) as Step
  it('take from the end of the one before; a gap is not a long step', () => {
    expect(timed([step(9, 30), step(5, 12), step(4, 10)]).map((one) => one.seconds)).toEqual([null, 2, null])
    expect(timed([{ ...step(6, 0), ended_at: null }, step(5, 12)]).map((one) => one.seconds)).toEqual([null, null])
  })
  it('tell the share of the tracer', () => {
    expect(overhead([step(3, 3), step(2, 2), step(1, 1)])).toEqual({ seconds: 0.001, share: 0.001 })
    expect(overhead([step(1, 1)])).toEqual({ seconds: 0.001, share: null })
    expect(overhead([step(1, 1, null)])).toBeNull()
  })
})

it('slots of a span stand side by side, and a million of them are bounded', () => {
  const span = { attributes: { 'ctx.slot.name': ['x', ''], 'ctx.slot.shape': ['2x4'], 'ctx.slot.has_grad': [false, true] } } as unknown as Span
  expect(slots(span)).toMatchObject([{ index: 0, name: 'x', shape: '2x4', hasGrad: 'false' }, { index: 1, name: '', shape: '', hasGrad: 'true' }])
  expect(slots({ attributes: { 'ctx.slot.name': Array(1e6).fill('x') } } as unknown as Span)).toHaveLength(512)
})

describe('alertText', () => {
  const alert: Alert = {
    fingerprint: 'f', run: 'r', attempt: 0, state: 'firing', rule: 'CT105', slug: 'placements-changed', severity: 'error', title: '', meaning: '',
    cause: 'A copy.', remedy: 'Upgrade.', message: 'Lost.', ranks: [0, 1], processes: [], region: { name: 'layers.7', ordinal: 0, source: 'm.py:4', mode: 'hook' },
    slot: 4, tensor: { name: 'w', layer: 'layers.7', role: 'parameter' }, step: { first: 12, last: 14 }, last_clean_step: 11, micro_batch: null, count: 2,
    captured: { placements: ['Shard(1)'], dtype: 'float32' }, produced: { placements: [], dtype: 'float32' }, served: null, differs: ['placements'],
    known_issue: { id: 'PR 1', title: 'Loses\u202e', url: 'https://example.org/1', fixed_in: '3.1.1' }, detail: {},
    first_seen_at: '', last_seen_at: '', resolved_at: null,
  }
  it('says all that a reader of an issue needs', () => {
    expect(alertText(alert, 'http://host/alerts/f')).toMatchInlineSnapshot(`
      "CT105 placements-changed (error, firing)
      Lost.

      Run: r, attempt 0
      Ranks 0, 1, steps 12–14, 2 times
      Last clean step: 11
      Region: layers.7 (hook) at m.py:4, slot 4
      Tensor: w, layer layers.7, parameter

                    captured    produced  served
        dtype       float32     float32   not observed
      ≠ placements  [Shard(1)]  []        not observed

      Likely cause: A copy.

      What to do: Upgrade.

      Known issue PR 1: Loses⟨U+202E⟩, fixed in 3.1.1
      https://example.org/1

      http://host/alerts/f"
    `)
  })
})

describe('coalesce', () => {
  beforeEach(() => void vi.useFakeTimers())
  afterEach(() => void vi.useRealTimers())

  it('works at once, then at most once per pause, and once more for what came meanwhile', async () => {
    let runs = 0
    const work = coalesce(async () => void runs++, () => 500)
    for (let i = 0; i < 100; i++) work.request()
    expect(runs).toBe(1)
    await vi.advanceTimersByTimeAsync(499)
    expect(runs).toBe(1)
    await vi.advanceTimersByTimeAsync(1)
    expect(runs).toBe(2)
    await vi.advanceTimersByTimeAsync(5000)
    expect(runs).toBe(2)
  })
  it('never has two at once', async () => {
    let [busy, most] = [0, 0]
    const work = coalesce(async () => {
      most = Math.max(most, ++busy)
      await new Promise((done) => setTimeout(done, 1000))
      busy--
    }, () => 0)
    for (let i = 0; i < 10; i++) {
      work.request()
      await vi.advanceTimersByTimeAsync(300)
    }
    expect(most).toBe(1)
  })
  it('does nothing after it was stopped', async () => {
    let runs = 0
    const work = coalesce(async () => void runs++, () => 10)
    work.request()
    work.request()
    work.stop()
    await vi.advanceTimersByTimeAsync(1000)
    expect(runs).toBe(1)
  })
})

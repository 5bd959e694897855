/** What recent steps tell together. Steps come newest first, as the collector answers. */
import type { Step } from './api/types'

export interface TimedStep extends Step {
  /** From the end of the step before to the end of this one; null for the oldest and across a gap. */
  seconds: number | null
}

export function timed(steps: readonly Step[]): TimedStep[] {
  return steps.map((step, i) => {
    const before = steps[i + 1]
    const seconds = before?.step === step.step - 1 ? (ended(step) - ended(before)) / 1000 : NaN
    return { ...step, seconds: seconds >= 0 ? seconds : null }
  })
}

function ended(step: Step): number {
  return step.ended_at === null ? NaN : Date.parse(step.ended_at)
}

function median(values: number[]): number | null {
  if (!values.length) return null
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.floor(sorted.length / 2)]!
}

/** The tracer's own time in a typical step and its share of it; null where nothing was measured. */
export function overhead(steps: readonly Step[]): { seconds: number; share: number | null } | null {
  const known = timed(steps)
  const seconds = median(known.flatMap((step) => (step.own_seconds === null ? [] : [step.own_seconds])))
  if (seconds === null) return null
  const whole = median(known.flatMap((step) => (step.seconds === null || step.own_seconds === null ? [] : [step.seconds])))
  return { seconds, share: whole ? seconds / whole : null }
}

import { describe, expect, it } from 'vitest'
import { cellText, compare, tokens } from '../src/lib/facts'

const base = { captured: null, produced: null, served: null, differs: [] as string[] }

describe('compare', () => {
  const rows = compare({
    captured: { shape: [2, 4], placements: ['Shard(1)'], stop_gradient: false, later: 1 },
    produced: { shape: [2, 8], placements: [], stop_gradient: false, later: 1 },
    served: null,
    differs: ['placements', 'name'],
  })
  const row = (fact: string) => rows.find((one) => one.fact === fact)!

  it('keeps the order of the report, then the unknown', () => {
    expect(rows.map((one) => one.fact)).toEqual(['name', 'shape', 'placements', 'stop_gradient', 'later'])
  })
  it('tells what the rule fired on from what differs too', () => {
    expect(row('placements').differs).toBe('rule')
    expect(row('shape').differs).toBe('also')
    expect(row('stop_gradient').differs).toBeNull()
  })
  it('shows a fact that the rule names and nobody knows', () => {
    expect(row('name').differs).toBe('rule')
    expect(cellText(row('name').cells.captured)).toBe('not observed')
  })
  it('never calls a side that was not observed different', () => {
    expect(row('shape').cells.served).toEqual({ tokens: null, changed: false })
    expect(compare({ ...base, produced: { dtype: 'float32' } })[0]!.cells.produced.changed).toBe(false)
  })
  it('is empty where there are no facts', () => expect(compare(base)).toEqual([]))
})

describe('tokens', () => {
  it('marks the element that differs', () => {
    expect(tokens([2, 8], [2, 4])).toEqual([
      { text: '[2, ', changed: false },
      { text: '8', changed: true },
      { text: ']', changed: false },
    ])
  })
  it('marks the whole list where its length differs', () => {
    expect(tokens([], ['Shard(1)'])).toEqual([{ text: '[]', changed: true }])
  })
  it('shows null, booleans and objects as JSON does', () => {
    expect(tokens(false, true)).toEqual([{ text: 'false', changed: true }])
    expect(tokens({ a: [1] }, undefined)).toEqual([{ text: '{"a":[1]}', changed: false }])
  })
})

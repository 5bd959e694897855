import { describe, expect, it } from 'vitest'
import { alertAt } from '../src/lib/heatmap/find'
import { decode, margins, nextFinding, ranksByState, same, sample, tally, type Grid } from '../src/lib/heatmap/grid'
import { commonPrefix, fitEnd } from '../src/lib/heatmap/labels'
import { pack } from '../src/lib/heatmap/palette'
import type { Alert } from '../src/lib/api/types'

function grid(rows: number[][]): Grid {
  const columns = rows[0]?.length ?? 0
  return {
    ranks: rows.map((_, i) => i),
    regions: Array.from({ length: columns }, (_, i) => ({ name: `r.${i}`, mode: 'hook', source: null })),
    rows: rows.length,
    columns,
    cells: Uint8Array.from(rows.flat()),
  }
}

const whole = (g: Grid) => ({ top: 0, left: 0, bottom: g.rows, right: g.columns })

describe('decode', () => {
  const regions = [{ name: 'a', mode: 'hook', source: null }]
  it('reads a row a rank', () => {
    expect([...decode({ ranks: [0, 3], regions, cells: btoa('\x01\x05') }).cells]).toEqual([1, 5])
  })
  it('refuses cells that do not fit', () => {
    expect(() => decode({ ranks: [0, 1], regions, cells: btoa('\x01') })).toThrow(RangeError)
  })
  it('takes a state of a later version as the worst it knows', () => {
    expect(decode({ ranks: [0], regions, cells: btoa('\x09') }).cells[0]).toBe(5)
  })
})

describe('sample', () => {
  it('is the grid itself where there is room', () => {
    const g = grid([[1, 5], [0, 2]])
    expect([...sample(g, whole(g), 10, 10).states]).toEqual([1, 5, 0, 2])
  })
  it('keeps the worst, never an average', () => {
    const g = grid([[1, 1, 1, 4], [1, 1, 1, 1], [1, 5, 1, 1], [2, 1, 1, 1], [0, 0, 0, 3]])
    const s = sample(g, whole(g), 3, 2)
    expect([s.height, s.width, s.rowsEach, s.columnsEach]).toEqual([3, 2, 2, 2])
    expect([...s.states]).toEqual([1, 4, 5, 1, 0, 3])
  })
  it('loses no cell, whatever the window and the size', () => {
    const rows = Array.from({ length: 97 }, (_, r) => Array.from({ length: 13 }, (_, c) => ((r * 31 + c * 17) % 89 === 0 ? 5 : 1)))
    const g = grid(rows)
    for (const [height, width] of [[1, 1], [7, 3], [96, 12], [500, 500]] as const) {
      for (const top of [0, 0.4, 13.7]) {
        const s = sample(g, { ...whole(g), top }, height, width)
        expect(s.row).toBeLessThanOrEqual(top)
        expect(s.height).toBeLessThanOrEqual(height + 1)
        const worst = g.cells.subarray(s.row * g.columns).includes(5)
        expect(s.states.includes(5)).toBe(worst)
      }
    }
  })
  it('aligns its pixels, so that panning does not make them flicker', () => {
    const g = grid(Array.from({ length: 100 }, () => [1]))
    expect(sample(g, { top: 7.5, bottom: 57.5, left: 0, right: 1 }, 10, 1).row % 5).toBe(0)
  })
  it('is empty for an empty grid', () => {
    const g = grid([])
    expect(sample(g, whole(g), 10, 10).states).toHaveLength(0)
  })
})

describe('what the map says in other ways', () => {
  const g = grid([[1, 1, 0], [1, 5, 1], [2, 4, 1]])
  it('margins show the worst of each rank and region', () => {
    expect([...margins(g).rows]).toEqual([1, 5, 4])
    expect([...margins(g).columns]).toEqual([2, 5, 1])
  })
  it('tally counts cells', () => expect(tally(g)).toEqual([1, 5, 1, 0, 1, 1]))
  it('ranks of a region by state', () => expect(ranksByState(g, 1)[5]).toEqual([1]))
  it('goes from finding to finding and wraps', () => {
    expect(nextFinding(g, { row: 0, column: 0 }, true)).toEqual({ row: 1, column: 1 })
    expect(nextFinding(g, { row: 2, column: 1 }, true)).toEqual({ row: 1, column: 1 })
    expect(nextFinding(g, { row: 0, column: 0 }, false)).toEqual({ row: 2, column: 1 })
    const block = grid([[5, 5, 1], [5, 5, 1], [1, 1, 4]])
    expect(nextFinding(block, { row: 0, column: 0 }, true)).toEqual({ row: 2, column: 2 })
    expect(nextFinding(block, { row: 2, column: 2 }, true)).toEqual({ row: 0, column: 0 })
    expect(nextFinding(grid([[1, 0]]), { row: 0, column: 0 }, true)).toBeNull()
  })
})

describe('alertAt', () => {
  const alert = (fields: Partial<Alert>): Alert =>
    ({ state: 'firing', severity: 'error', ranks: [1], region: { name: 'r.1', mode: 'hook', ordinal: 0, source: null }, ...fields }) as Alert
  const region = { name: 'r.1', mode: 'hook', source: null }
  it('finds the worst that is firing there', () => {
    const [info, error] = [alert({ severity: 'info' }), alert({})]
    expect(alertAt([info, error], region, 1)).toBe(error)
    expect(alertAt([info, error], region, 0)).toBeUndefined()
    expect(alertAt([alert({ state: 'resolved' })], region, 1)).toBeUndefined()
    expect(alertAt([alert({ region: null })], region, 1)).toBeUndefined()
  })
})

describe('labels', () => {
  it('says the common part once, at a dot', () => {
    expect(commonPrefix(['model.layers.1', 'model.layers.12'])).toBe('model.layers.')
    expect(commonPrefix(['blocks.1', 'block.1'])).toBe('')
    expect(commonPrefix(['a.b', 'a.b.c'])).toBe('a.')
    expect(commonPrefix(['a.', 'a.b'])).toBe('')
    expect(commonPrefix(['only.one'])).toBe('')
  })
  it('keeps the end of what is too long', () => {
    const measure = (text: string): number => text.length
    expect(fitEnd('layers.12.mlp', 6, measure)).toBe('…2.mlp')
    expect(fitEnd('short', 6, measure)).toBe('short')
    expect(fitEnd('anything', 0.5, measure)).toBe('')
  })
})

it('packs a colour as ImageData stores it', () => expect(pack('rgb(18, 52, 86)').toString(16)).toBe('ff563412'))

it('knows an answer that says nothing new', () => {
  const map = () => ({ ranks: [0, 1], regions: [{ name: 'a', mode: 'hook', source: null }], cells: btoa('\x01\x01') })
  expect(same(map(), map())).toBe(true)
  expect(same(map(), { ...map(), cells: btoa('\x01\x05') })).toBe(false)
  expect(same(map(), { ...map(), ranks: [0, 2] })).toBe(false)
  expect(same(map(), { ...map(), regions: [{ name: 'b', mode: 'hook', source: null }] })).toBe(false)
})

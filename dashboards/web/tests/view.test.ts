import { describe, expect, it } from 'vitest'
import { cellAt, fit, labelEvery, MAX_CELL, pan, resized, reveal, zoom, zoomable, type View } from '../src/lib/heatmap/view'

const size = { width: 1300, height: 560 }
const huge = { rows: 10_000, columns: 100 }
const small = { rows: 2, columns: 4 }

function inside(view: View, shape = huge): void {
  expect(view.x).toBeGreaterThanOrEqual(0)
  expect(view.y).toBeGreaterThanOrEqual(0)
  expect(view.x).toBeLessThanOrEqual(Math.max(0, shape.columns - size.width / view.cellWidth) + 1e-9)
  expect(view.y).toBeLessThanOrEqual(Math.max(0, shape.rows - size.height / view.cellHeight) + 1e-9)
}

describe('fit', () => {
  it('shows everything', () => {
    const view = fit(huge, size)
    expect(view.cellWidth * huge.columns).toBeCloseTo(size.width)
    expect(view.cellHeight * huge.rows).toBeCloseTo(size.height)
  })
  it('does not make a wall of four cells', () => {
    expect(fit(small, size).cellHeight).toBe(MAX_CELL.height)
  })
})

describe('zoom', () => {
  it('stretches the denser axis first and stays on the map', () => {
    let view = fit(huge, size)
    for (let i = 0; i < 5; i++) view = zoom(view, huge, size, { x: 650, y: 280 }, 1.5)
    expect(view.cellWidth).toBeCloseTo(13)
    expect(view.cellHeight).toBeCloseTo(0.056 * 1.5 ** 5)
    for (let i = 0; i < 40; i++) {
      view = zoom(view, huge, size, { x: 650, y: 280 }, 1.5)
      inside(view)
    }
    expect(zoomable(view, huge, size)).toEqual({ closer: false, farther: true })
  })
  it('keeps the rank under the pointer', () => {
    const at = { x: 300, y: 420 }
    const before = fit(huge, size)
    const view = zoom(before, huge, size, at, 8)
    expect(view.y + at.y / view.cellHeight).toBeCloseTo(before.y + at.y / before.cellHeight)
  })
  it('comes all the way back', () => {
    let view = fit(huge, size)
    for (let i = 0; i < 40; i++) view = zoom(view, huge, size, { x: 1200, y: 500 }, 1.5)
    for (let i = 0; i < 80; i++) view = zoom(view, huge, size, { x: 10, y: 10 }, 1 / 1.5)
    expect(view).toEqual(fit(huge, size))
    expect(zoomable(view, huge, size)).toEqual({ closer: true, farther: false })
  })
  it('has nothing to do where all cells are readable', () => {
    expect(zoomable(fit(small, size), small, size)).toEqual({ closer: false, farther: false })
  })
})

it('pans no farther than the edge', () => {
  const close = zoom(fit(huge, size), huge, size, { x: 0, y: 0 }, 200)
  expect(pan(close, huge, size, 5000, 5000)).toMatchObject({ x: 0, y: 0 })
  inside(pan(close, huge, size, -1e9, -1e9))
})

it('reveals a cell by moving as little as needed', () => {
  const close = zoom(fit(huge, size), huge, size, { x: 0, y: 0 }, 400)
  const view = reveal(close, huge, size, { row: 9999, column: 0 })
  expect(view.y + size.height / view.cellHeight).toBeCloseTo(10_000)
  expect(reveal(view, huge, size, { row: 9999, column: 0 })).toEqual(view)
})

it('knows the cell under a point, and none beside the map', () => {
  const view = fit(small, size)
  expect(cellAt(view, small, view.cellWidth * 1.5, 40)).toEqual({ row: 1, column: 1 })
  expect(cellAt(view, small, 5, 200)).toBeNull()
})

it('shows all of it again when the window grows, and the same detail where there was one', () => {
  const larger = { width: 2000, height: 600 }
  expect(resized(fit(huge, size), huge, size, larger, huge)).toEqual(fit(huge, larger))
  const close = zoom(fit(huge, size), huge, size, { x: 0, y: 0 }, 400)
  expect(resized(close, huge, size, larger, huge).cellHeight).toBe(close.cellHeight)
})

it('labels every 1st, 2nd, 5th, 10th, ... as there is room', () => {
  expect([30, 13, 5, 1.5, 0.056].map((cell) => labelEvery(cell, 16))).toEqual([1, 2, 5, 20, 500])
})

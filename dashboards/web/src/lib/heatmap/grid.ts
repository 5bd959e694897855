/** The cells of a heat map, and the same cells at the resolution of a screen. Pure. */
import type { HeatMap, HeatRegion } from '../api/types'
import { MATCH, STATES } from '../severity'

export interface Grid {
  ranks: readonly number[]
  regions: readonly HeatRegion[]
  rows: number
  columns: number
  /** rows * columns states (lib/severity.ts), a row a rank. */
  cells: Uint8Array
}

/** Raises RangeError where the cells do not fit the ranks and regions: half a map would mislead. */
export function decode(map: HeatMap): Grid {
  const raw = atob(map.cells)
  const [rows, columns] = [map.ranks.length, map.regions.length]
  if (raw.length !== rows * columns) {
    throw new RangeError(`The heat map has ${raw.length} cells for ${rows} ranks and ${columns} regions.`)
  }
  const cells = new Uint8Array(raw.length)
  for (let i = 0; i < raw.length; i++) cells[i] = Math.min(raw.charCodeAt(i), STATES.length - 1)
  return { ranks: map.ranks, regions: map.regions, rows, columns, cells }
}

/** Whether two answers say the same, so that a million cells are not decoded and painted again for nothing. */
export function same(a: HeatMap, b: HeatMap): boolean {
  return (
    a.cells === b.cells &&
    a.ranks.length === b.ranks.length &&
    a.regions.length === b.regions.length &&
    a.ranks.every((rank, i) => rank === b.ranks[i]) &&
    a.regions.every((region, i) => region.name === b.regions[i]!.name && region.mode === b.regions[i]!.mode)
  )
}

export interface Sample {
  /** Index of the first row and column that the sample covers. */
  row: number
  column: number
  /** How many rows and columns of the grid one pixel of the sample stands for. */
  rowsEach: number
  columnsEach: number
  height: number
  width: number
  /** height * width states: the worst of the cells each stands for. */
  states: Uint8Array
}

/**
 * The cells from row `top` to `bottom` and column `left` to `right` (may be fractions), in at most `maxHeight` by
 * `maxWidth` pixels. A pixel shows the worst of its cells, never an average: one failing rank in ten thousand stays
 * visible. Pixels are aligned to multiples of their size, so that panning does not make them flicker.
 */
export function sample(
  grid: Grid,
  window: { top: number; bottom: number; left: number; right: number },
  maxHeight: number,
  maxWidth: number,
): Sample {
  const rowsEach = Math.max(1, Math.ceil((window.bottom - window.top) / Math.max(1, maxHeight)))
  const columnsEach = Math.max(1, Math.ceil((window.right - window.left) / Math.max(1, maxWidth)))
  const row = Math.max(0, Math.floor(window.top / rowsEach) * rowsEach)
  const column = Math.max(0, Math.floor(window.left / columnsEach) * columnsEach)
  const height = Math.max(0, Math.ceil((Math.min(grid.rows, window.bottom) - row) / rowsEach))
  const width = Math.max(0, Math.ceil((Math.min(grid.columns, window.right) - column) / columnsEach))
  const states = new Uint8Array(height * width)
  for (let y = 0; y < height; y++) {
    const lastRow = Math.min(grid.rows, row + (y + 1) * rowsEach)
    for (let r = row + y * rowsEach; r < lastRow; r++) {
      const base = r * grid.columns
      const out = y * width
      for (let x = 0; x < width; x++) {
        let worst = states[out + x]!
        const end = Math.min(grid.columns, column + (x + 1) * columnsEach)
        for (let c = column + x * columnsEach; c < end; c++) {
          const state = grid.cells[base + c]!
          if (state > worst) worst = state
        }
        states[out + x] = worst
      }
    }
  }
  return { row, column, rowsEach, columnsEach, height, width, states }
}

/** The worst state of each row (a rank) and of each column (a region). */
export function margins(grid: Grid): { rows: Uint8Array; columns: Uint8Array } {
  const rows = new Uint8Array(grid.rows)
  const columns = new Uint8Array(grid.columns)
  for (let r = 0, i = 0; r < grid.rows; r++) {
    for (let c = 0; c < grid.columns; c++, i++) {
      const state = grid.cells[i]!
      if (state > rows[r]!) rows[r] = state
      if (state > columns[c]!) columns[c] = state
    }
  }
  return { rows, columns }
}

/** How many cells are in each state, by byte. */
export function tally(grid: Grid): number[] {
  const counts = STATES.map(() => 0)
  for (const state of grid.cells) counts[state]!++
  return counts
}

/** Neither a match nor unseen, and the first of its block: neither the rank above nor the region before is in that state. */
function corner(grid: Grid, i: number): boolean {
  const state = grid.cells[i]!
  if (state <= MATCH) return false
  const above = i >= grid.columns && grid.cells[i - grid.columns] === state
  const before = i % grid.columns > 0 && grid.cells[i - 1] === state
  return !above && !before
}

/** The next block of findings after (or, backwards, before) `from`, by its first cell, wrapping round; null if none. */
export function nextFinding(grid: Grid, from: { row: number; column: number }, forward: boolean): { row: number; column: number } | null {
  const total = grid.cells.length
  const start = from.row * grid.columns + from.column
  for (let n = 1; n <= total; n++) {
    const i = (start + (forward ? n : total * 2 - n)) % total
    if (corner(grid, i)) return { row: Math.floor(i / grid.columns), column: i % grid.columns }
  }
  return null
}

/** The ranks in each state of one region, by byte: what the map says, as text. */
export function ranksByState(grid: Grid, column: number): number[][] {
  const ranks: number[][] = STATES.map(() => [])
  for (let r = 0; r < grid.rows; r++) ranks[grid.cells[r * grid.columns + column]!]!.push(grid.ranks[r]!)
  return ranks
}

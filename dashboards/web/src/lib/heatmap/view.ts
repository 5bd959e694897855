/** Which part of the heat map is on the screen: zoom and pan as pure functions over a frozen view. */

export interface Size {
  width: number
  height: number
}

export interface View {
  /** Top left corner, in cells. */
  x: number
  y: number
  /** Pixels a cell takes. */
  cellWidth: number
  cellHeight: number
}

export interface Shape {
  rows: number
  columns: number
}

/** A cell is not drawn larger than this (CSS pixels): beyond it a map of four cells becomes a wall. */
export const MAX_CELL: Size = { width: 340, height: 30 }

/** Zooming ends where a cell has room for its sign and its column for a name. */
const READABLE: Size = { width: 64, height: 24 }

function clamp(value: number, low: number, high: number): number {
  return Math.min(Math.max(value, low), Math.max(low, high))
}

function smallest(shape: Shape, size: Size): Size {
  return {
    width: Math.min(MAX_CELL.width, size.width / Math.max(1, shape.columns)),
    height: Math.min(MAX_CELL.height, size.height / Math.max(1, shape.rows)),
  }
}

function largest(all: Size): Size {
  return { width: Math.max(all.width, READABLE.width), height: Math.max(all.height, READABLE.height) }
}

/** The same view moved to where it shows cells only, at a zoom that is allowed. */
function bounded(view: View, shape: Shape, size: Size): View {
  const all = smallest(shape, size)
  const cellWidth = clamp(view.cellWidth, all.width, largest(all).width)
  const cellHeight = clamp(view.cellHeight, all.height, largest(all).height)
  return {
    cellWidth,
    cellHeight,
    x: clamp(view.x, 0, shape.columns - size.width / cellWidth),
    y: clamp(view.y, 0, shape.rows - size.height / cellHeight),
  }
}

/** Everything at once. */
export function fit(shape: Shape, size: Size): View {
  const cell = smallest(shape, size)
  return { x: 0, y: 0, cellWidth: cell.width, cellHeight: cell.height }
}

/** The view after the canvas or the grid changed size: all of it stays all of it, a detail stays the same detail. */
export function resized(view: View, shape: Shape, before: Size, size: Size, beforeShape: Shape): View {
  const old = smallest(beforeShape, before)
  const all = smallest(shape, size)
  return bounded(
    {
      ...view,
      cellWidth: view.cellWidth <= old.width * 1.001 ? all.width : view.cellWidth,
      cellHeight: view.cellHeight <= old.height * 1.001 ? all.height : view.cellHeight,
    },
    shape,
    size,
  )
}

/**
 * Closer (factor > 1) or farther around a point of the canvas. The denser axis goes first: ten thousand ranks are
 * stretched to readable rows before regions, which are readable already, are stretched out of the screen.
 */
export function zoom(view: View, shape: Shape, size: Size, at: { x: number; y: number }, factor: number): View {
  const all = smallest(shape, size)
  const stretched = view.cellWidth > all.width * 1.001
  const dense = view.cellHeight < Math.min(all.width, READABLE.height)
  const cellHeight = factor < 1 && stretched ? view.cellHeight : view.cellHeight * factor
  const cellWidth = factor > 1 && dense ? view.cellWidth : view.cellWidth * factor
  const next = bounded({ ...view, cellWidth, cellHeight }, shape, size)
  return bounded(
    {
      ...next,
      x: view.x + at.x / view.cellWidth - at.x / next.cellWidth,
      y: view.y + at.y / view.cellHeight - at.y / next.cellHeight,
    },
    shape,
    size,
  )
}

/** Moved by pixels of the canvas. */
export function pan(view: View, shape: Shape, size: Size, dx: number, dy: number): View {
  return bounded({ ...view, x: view.x - dx / view.cellWidth, y: view.y - dy / view.cellHeight }, shape, size)
}

/** The view moved by as little as shows the cell. */
export function reveal(view: View, shape: Shape, size: Size, cell: { row: number; column: number }): View {
  const [width, height] = [size.width / view.cellWidth, size.height / view.cellHeight]
  return bounded(
    {
      ...view,
      x: clamp(view.x, cell.column + 1 - width, cell.column),
      y: clamp(view.y, cell.row + 1 - height, cell.row),
    },
    shape,
    size,
  )
}

/** The cell under a point of the canvas; null beside the map. */
export function cellAt(view: View, shape: Shape, x: number, y: number): { row: number; column: number } | null {
  const column = Math.floor(view.x + x / view.cellWidth)
  const row = Math.floor(view.y + y / view.cellHeight)
  return column >= 0 && row >= 0 && column < shape.columns && row < shape.rows ? { row, column } : null
}

/** Is there anything closer, or farther, to see? */
export function zoomable(view: View, shape: Shape, size: Size): { closer: boolean; farther: boolean } {
  const all = smallest(shape, size)
  return {
    closer: view.cellWidth < largest(all).width * 0.999 || view.cellHeight < largest(all).height * 0.999,
    farther: view.cellWidth > all.width * 1.001 || view.cellHeight > all.height * 1.001,
  }
}

/** Every how many rows or columns a label fits, from 1, 2, 5, 10, 20, 50, ... */
export function labelEvery(cellPixels: number, labelPixels: number): number {
  for (let power = 1; ; power *= 10) {
    for (const step of [1, 2, 5]) if (step * power * cellPixels >= labelPixels) return step * power
  }
}

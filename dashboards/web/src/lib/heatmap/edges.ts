/** What stands beside the heat map's cells: ranks, regions, and strips that show the worst of each. */
import { count } from '../format'
import { fitEnd } from './labels'
import { FONT_SIZE, ROOMY, STRIP, STRIP_GAP } from './layout'
import type { Frame } from './paint'
import type { Palette } from './palette'
import { labelEvery, type Size } from './view'

// A worst state thinner than this on a strip would be missed.
const MARK_MIN = 3

export function paintLabels(context: CanvasRenderingContext2D, frame: Frame, area: Size): void {
  context.font = `${FONT_SIZE}px ${frame.palette.mono}`
  paintRankLabels(context, frame, area)
  paintRegionLabels(context, frame, area)
}

function paintRankLabels(context: CanvasRenderingContext2D, { grid, labels, view, cursor, palette }: Frame, area: Size): void {
  context.textAlign = 'right'
  context.textBaseline = 'middle'
  const every = labelEvery(view.cellHeight, FONT_SIZE + 5)
  const y = (row: number): number => labels.top + (row + 0.5 - view.y) * view.cellHeight
  const draw = (row: number): void => context.fillText(count(grid.ranks[row]), labels.left - 8, y(row))
  const inside = (row: number): boolean => y(row) >= labels.top && y(row) <= labels.top + area.height
  context.fillStyle = palette.muted
  for (let row = Math.ceil(view.y / every) * every; row < grid.rows; row += every) {
    if (y(row) > labels.top + area.height) break
    const hidden = cursor && row !== cursor.row && Math.abs(y(row) - y(cursor.row)) < FONT_SIZE + 2
    if (inside(row) && !hidden) draw(row)
  }
  context.fillStyle = palette.text
  if (cursor && inside(cursor.row)) draw(cursor.row)
}

function paintRegionLabels(context: CanvasRenderingContext2D, frame: Frame, area: Size): void {
  const { grid, labels, view, cursor, palette } = frame
  const apart = labels.upright ? FONT_SIZE + 3 : view.cellWidth >= ROOMY ? view.cellWidth : Math.min(labels.widest, 64) + 8
  const every = labelEvery(view.cellWidth, apart)
  const room = labels.upright ? labels.top - 10 : view.cellWidth * every - 6
  const x = (column: number): number => labels.left + (column + 0.5 - view.x) * view.cellWidth
  const draw = (column: number): void => {
    context.save()
    context.translate(x(column), labels.top - 7)
    if (labels.upright) context.rotate(-Math.PI / 2)
    context.textAlign = labels.upright ? 'left' : 'center'
    context.textBaseline = labels.upright ? 'middle' : 'alphabetic'
    context.fillText(fitEnd(labels.regions[column]!, room, (text) => context.measureText(text).width), 0, 0)
    context.restore()
  }
  const inside = (column: number): boolean => x(column) >= labels.left && x(column) <= labels.left + area.width
  context.fillStyle = palette.muted
  for (let column = Math.ceil(view.x / every) * every; column < grid.columns; column += every) {
    const hidden = cursor && column !== cursor.column && Math.abs(x(column) - x(cursor.column)) < Math.min(apart, view.cellWidth * every)
    if (inside(column) && !hidden) draw(column)
  }
  context.fillStyle = palette.text
  if (cursor && inside(cursor.column)) draw(cursor.column)
}

export function paintStrips(context: CanvasRenderingContext2D, frame: Frame, area: Size): void {
  const { grid, labels, view, margins: worst, palette } = frame
  const height = Math.min(area.height, grid.rows * view.cellHeight)
  const width = Math.min(area.width, grid.columns * view.cellWidth)
  const right = labels.left + width + STRIP_GAP - 1
  const below = labels.top + height + STRIP_GAP - 1
  if (labels.right) strip(worst.rows, height, palette, (at, length) => context.fillRect(right, labels.top + at, STRIP, length), context)
  if (labels.bottom) strip(worst.columns, width, palette, (at, length) => context.fillRect(labels.left + at, below, length, STRIP), context)
  context.fillStyle = palette.text
  // What is in sight, where that is not everything.
  if (labels.right && grid.rows * view.cellHeight > area.height + 1) {
    const scale = height / grid.rows
    context.fillRect(right + STRIP, labels.top + view.y * scale, 2, Math.max(4, (area.height / view.cellHeight) * scale))
  }
  if (labels.bottom && grid.columns * view.cellWidth > area.width + 1) {
    const scale = width / grid.columns
    context.fillRect(labels.left + view.x * scale, below + STRIP, Math.max(4, (area.width / view.cellWidth) * scale), 2)
  }
}

/** Worse states later, so that they lie on top where marks overlap. */
function strip(
  states: Uint8Array,
  length: number,
  palette: Palette,
  fill: (at: number, length: number) => void,
  context: CanvasRenderingContext2D,
): void {
  const scale = length / states.length
  for (let state = 0; state < palette.cells.length; state++) {
    context.fillStyle = palette.cells[state]!
    for (let from = 0; from < states.length; from++) {
      if (states[from] !== state) continue
      let to = from + 1
      while (to < states.length && states[to] === state) to++
      const least = state > 1 ? MARK_MIN : 0
      fill(from * scale, Math.max(least, (to - from) * scale))
      from = to
    }
  }
}


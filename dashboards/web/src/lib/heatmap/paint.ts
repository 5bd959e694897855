/** Draws the heat map. One call draws all of it; it never takes longer because the job has more ranks. */
import { SIGNS, stateOf } from '../severity'
import { sample, type Grid } from './grid'
import { paintLabels, paintStrips } from './edges'
import { inner, type Labels } from './layout'
import type { Palette } from './palette'
import type { Size, View } from './view'

export interface Frame {
  grid: Grid
  labels: Labels
  margins: { rows: Uint8Array; columns: Uint8Array }
  view: View
  /** Of the whole canvas, CSS pixels. */
  size: Size
  ratio: number
  cursor: { row: number; column: number } | null
  focused: boolean
  palette: Palette
}

const scratch = document.createElement('canvas')

export function paint(context: CanvasRenderingContext2D, frame: Frame): void {
  const { labels, size, ratio } = frame
  context.setTransform(ratio, 0, 0, ratio, 0, 0)
  context.clearRect(0, 0, size.width, size.height)
  if (!frame.grid.cells.length) return
  context.save()
  context.translate(labels.left, labels.top)
  const area = inner(size, labels)
  context.beginPath()
  context.rect(0, 0, area.width, area.height)
  context.clip()
  paintCells(context, frame, area)
  paintGaps(context, frame, area)
  paintSigns(context, frame, area)
  paintCursor(context, frame)
  context.restore()
  paintLabels(context, frame, area)
  paintStrips(context, frame, area)
}

function paintCells(context: CanvasRenderingContext2D, { grid, view, ratio, palette }: Frame, area: Size): void {
  const window = {
    top: view.y,
    left: view.x,
    bottom: Math.min(grid.rows, view.y + area.height / view.cellHeight),
    right: Math.min(grid.columns, view.x + area.width / view.cellWidth),
  }
  const cells = sample(grid, window, Math.floor(area.height * ratio), Math.floor(area.width * ratio))
  if (!cells.states.length) return
  const image = new ImageData(cells.width, cells.height)
  const pixels = new Uint32Array(image.data.buffer)
  for (let i = 0; i < pixels.length; i++) pixels[i] = palette.packed[cells.states[i]!]!
  scratch.width = cells.width
  scratch.height = cells.height
  scratch.getContext('2d')!.putImageData(image, 0, 0)
  context.imageSmoothingEnabled = false
  context.drawImage(
    scratch,
    (cells.column - view.x) * view.cellWidth,
    (cells.row - view.y) * view.cellHeight,
    cells.width * cells.columnsEach * view.cellWidth,
    cells.height * cells.rowsEach * view.cellHeight,
  )
}

/** Lines between cells that are large enough to be told apart. */
function paintGaps(context: CanvasRenderingContext2D, { grid, view, palette }: Frame, area: Size): void {
  context.fillStyle = palette.surface
  const across = view.cellHeight >= 18 ? 2 : view.cellHeight >= 6 ? 1 : 0
  const down = view.cellWidth >= 18 ? 2 : view.cellWidth >= 6 ? 1 : 0
  const bottom = Math.min(area.height, (grid.rows - view.y) * view.cellHeight)
  const right = Math.min(area.width, (grid.columns - view.x) * view.cellWidth)
  if (across) {
    for (let row = Math.ceil(view.y); row <= grid.rows; row++) {
      const y = (row - view.y) * view.cellHeight
      if (y > area.height + across) break
      context.fillRect(0, Math.round(y) - across, right, across)
    }
  }
  if (down) {
    for (let column = Math.ceil(view.x); column <= grid.columns; column++) {
      const x = (column - view.x) * view.cellWidth
      if (x > area.width + down) break
      context.fillRect(Math.round(x) - down, 0, down, bottom)
    }
  }
}

/** The sign of every state but a match, in cells that have room for it: colour is not alone. */
function paintSigns(context: CanvasRenderingContext2D, { grid, view, palette }: Frame, area: Size): void {
  if (view.cellWidth < 13 || view.cellHeight < 13) return
  context.font = `600 13px ${palette.mono}`
  context.textAlign = 'center'
  context.textBaseline = 'middle'
  const lastRow = Math.min(grid.rows, Math.ceil(view.y + area.height / view.cellHeight))
  const lastColumn = Math.min(grid.columns, Math.ceil(view.x + area.width / view.cellWidth))
  for (let row = Math.floor(view.y); row < lastRow; row++) {
    for (let column = Math.floor(view.x); column < lastColumn; column++) {
      const state = stateOf(grid.cells[row * grid.columns + column]!)
      if (state === 'match') continue
      context.fillStyle = state === 'unseen' ? palette.muted : palette.sign
      context.fillText(SIGNS[state], (column + 0.5 - view.x) * view.cellWidth - 1, (row + 0.5 - view.y) * view.cellHeight)
    }
  }
}

function paintCursor(context: CanvasRenderingContext2D, { cursor, focused, view, palette }: Frame): void {
  if (!cursor) return
  // A cell of a fraction of a pixel still gets a frame that can be seen.
  const width = Math.max(view.cellWidth, 5)
  const height = Math.max(view.cellHeight, 5)
  const x = Math.round((cursor.column + 0.5 - view.x) * view.cellWidth - width / 2)
  const y = Math.round((cursor.row + 0.5 - view.y) * view.cellHeight - height / 2)
  context.lineWidth = 2
  context.strokeStyle = palette.surface
  context.strokeRect(x - 2, y - 2, width + 2, height + 2)
  context.strokeStyle = focused ? palette.accent : palette.text
  context.strokeRect(x, y, Math.max(1, width - 2), Math.max(1, height - 2))
}

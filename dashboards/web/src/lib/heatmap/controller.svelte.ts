/** What the heat map shows and where its cursor is; the component passes events in and paints what comes out. */
import { margins, nextFinding, type Grid } from './grid'
import { inner, layout, type Labels } from './layout'
import { cellAt, fit, pan, resized, reveal, zoom, zoomable, type Size, type View } from './view'

export interface Cell {
  row: number
  column: number
}

const STEP = 1.5

export class HeatController {
  grid = $state.raw<Grid>({ ranks: [], regions: [], rows: 0, columns: 0, cells: new Uint8Array() })
  size = $state.raw<Size>({ width: 0, height: 0 })
  view = $state.raw<View>({ x: 0, y: 0, cellWidth: 1, cellHeight: 1 })
  /** Under the pointer. */
  hover = $state.raw<Cell | null>(null)
  /** Where the keyboard is. */
  cursor = $state.raw<Cell>({ row: 0, column: 0 })

  margins = $derived(margins(this.grid))
  labels: Labels = $derived(layout(this.grid, this.size.width, (text) => this.#measure(text)))
  area: Size = $derived(inner(this.size, this.labels))
  can = $derived(zoomable(this.view, this.grid, this.area))

  readonly #measure: (text: string) => number

  constructor(measure: (text: string) => number) {
    this.#measure = measure
  }

  /** New cells or a new size of the canvas; what is in sight stays in sight. */
  update(grid: Grid, size: Size): void {
    const [before, shape] = [this.area, this.grid]
    const first = shape.rows * shape.columns === 0 || this.size.width === 0
    this.grid = grid
    this.size = size
    this.view = first ? fit(grid, this.area) : resized(this.view, grid, before, this.area, shape)
    this.cursor = {
      row: Math.min(this.cursor.row, Math.max(0, grid.rows - 1)),
      column: Math.min(this.cursor.column, Math.max(0, grid.columns - 1)),
    }
    if (this.hover && (this.hover.row >= grid.rows || this.hover.column >= grid.columns)) this.hover = null
  }

  /** A point of the canvas as a cell; null beside the cells. */
  at(x: number, y: number): Cell | null {
    const [dx, dy] = [x - this.labels.left, y - this.labels.top]
    if (dx < 0 || dy < 0 || dx > this.area.width || dy > this.area.height) return null
    return cellAt(this.view, this.grid, dx, dy)
  }

  /** Top left corner of a cell on the canvas, and its size there. */
  place(cell: Cell): { x: number; y: number; width: number; height: number } {
    return {
      x: this.labels.left + (cell.column - this.view.x) * this.view.cellWidth,
      y: this.labels.top + (cell.row - this.view.y) * this.view.cellHeight,
      width: this.view.cellWidth,
      height: this.view.cellHeight,
    }
  }

  /** True where anything changed. */
  zoomAt(x: number, y: number, factor: number): boolean {
    const before = this.view
    this.view = zoom(before, this.grid, this.area, { x: x - this.labels.left, y: y - this.labels.top }, factor)
    return before.cellWidth !== this.view.cellWidth || before.cellHeight !== this.view.cellHeight
  }

  panBy(dx: number, dy: number): void {
    this.view = pan(this.view, this.grid, this.area, dx, dy)
  }

  fit(): void {
    this.view = fit(this.grid, this.area)
  }

  /** Closer or farther around the cursor. */
  zoomCursor(closer: boolean): void {
    const place = this.place(this.cursor)
    this.zoomAt(place.x + place.width / 2, place.y + place.height / 2, closer ? STEP : 1 / STEP)
    this.view = reveal(this.view, this.grid, this.area, this.cursor)
  }

  moveTo(cell: Cell): void {
    this.cursor = {
      row: Math.min(Math.max(cell.row, 0), this.grid.rows - 1),
      column: Math.min(Math.max(cell.column, 0), this.grid.columns - 1),
    }
    this.view = reveal(this.view, this.grid, this.area, this.cursor)
  }

  jump(forward: boolean): void {
    const cell = nextFinding(this.grid, this.cursor, forward)
    if (cell) this.moveTo(cell)
  }

  /** True where the key means something here. */
  key(key: string): boolean {
    const { row, column } = this.cursor
    // Where many ranks share a pixel, one step of the cursor is one that can be seen.
    const rows = Math.max(1, Math.round(2 / this.view.cellHeight))
    const page = Math.max(1, Math.floor(this.area.height / this.view.cellHeight) - 1)
    const moves: Record<string, () => void> = {
      ArrowUp: () => this.moveTo({ row: row - rows, column }),
      ArrowDown: () => this.moveTo({ row: row + rows, column }),
      ArrowLeft: () => this.moveTo({ row, column: column - 1 }),
      ArrowRight: () => this.moveTo({ row, column: column + 1 }),
      PageUp: () => this.moveTo({ row: row - page, column }),
      PageDown: () => this.moveTo({ row: row + page, column }),
      Home: () => this.moveTo({ row, column: 0 }),
      End: () => this.moveTo({ row, column: this.grid.columns - 1 }),
      n: () => this.jump(true),
      p: () => this.jump(false),
      '+': () => this.zoomCursor(true),
      '=': () => this.zoomCursor(true),
      '-': () => this.zoomCursor(false),
      '0': () => this.fit(),
    }
    const move = moves[key]
    move?.()
    return move !== undefined
  }
}

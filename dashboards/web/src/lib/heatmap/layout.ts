/** How much room the names beside the cells need. */
import { count } from '../format'
import { shown } from '../text'
import type { Grid } from './grid'
import { commonPrefix } from './labels'
import { MAX_CELL, type Size } from './view'

export interface Labels {
  /** What all region names begin with; not repeated at each. */
  prefix: string
  regions: string[]
  /** Pixels of the longest. */
  widest: number
  /** Region names stand on end: their columns are narrower than they are. */
  upright: boolean
  /** Pixels kept free on each side of the cells. */
  left: number
  top: number
  right: number
  bottom: number
}

export const FONT_SIZE = 11
// The strips along the right and lower edge: the worst of each rank and each region, over the whole map.
export const STRIP = 7
export const STRIP_GAP = 6
// Below this many ranks or regions the cells themselves cannot be missed.
const STRIP_FROM = 24
// Columns at least this wide are labelled one by one, shortened where they must be.
export const ROOMY = 72
const LONGEST_UPRIGHT = 96

/** `measure` gives pixels of a text in the labels' face. */
export function layout(grid: Grid, width: number, measure: (text: string) => number): Labels {
  const names = grid.regions.map((region) => shown(region.name, 60))
  const prefix = commonPrefix(names)
  const regions = names.map((name) => name.slice(prefix.length))
  const widest = Math.ceil(Math.max(0, ...regions.map(measure)))
  const left = Math.ceil(measure(count(grid.ranks.at(-1) ?? 0))) + 14
  const right = grid.rows > STRIP_FROM ? STRIP + STRIP_GAP + 2 : 0
  const column = Math.min(MAX_CELL.width, (width - left - right) / Math.max(1, grid.columns))
  const upright = column < ROOMY && widest > Math.max(40, column - 6)
  const top = (upright ? Math.min(LONGEST_UPRIGHT, widest) : FONT_SIZE) + 10
  return { prefix, regions, widest, upright, left, top, right, bottom: grid.columns > STRIP_FROM ? STRIP + STRIP_GAP + 2 : 0 }
}

/** The part of the canvas that holds cells. */
export function inner(size: Size, labels: Labels): Size {
  return {
    width: Math.max(1, size.width - labels.left - labels.right),
    height: Math.max(1, size.height - labels.top - labels.bottom),
  }
}

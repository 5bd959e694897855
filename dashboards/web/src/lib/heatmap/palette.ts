/** The theme's colours as the canvas needs them. */
import { STATES } from '../severity'

export interface Palette {
  /** By state byte, 0xAABBGGRR as ImageData stores it on a little-endian machine. */
  packed: Uint32Array
  /** By state byte, for strokes and fills. */
  cells: string[]
  surface: string
  sunken: string
  sign: string
  text: string
  muted: string
  line: string
  accent: string
  font: string
  mono: string
}

/** Resolves custom properties (`light-dark()` included) in the context of an element. */
export function readPalette(element: HTMLElement): Palette {
  const probe = document.createElement('span')
  probe.hidden = true
  element.append(probe)
  const color = (name: string): string => {
    probe.style.color = `var(${name})`
    return getComputedStyle(probe).color
  }
  const cells = STATES.map((state) => color(`--cell-${state}`))
  const style = getComputedStyle(element)
  const palette: Palette = {
    packed: Uint32Array.from(cells, pack),
    cells,
    surface: color('--surface'),
    sunken: color('--sunken'),
    sign: color('--cell-sign'),
    text: color('--text'),
    muted: color('--muted'),
    line: color('--line-strong'),
    accent: color('--accent'),
    font: style.fontFamily,
    mono: style.getPropertyValue('--mono'),
  }
  probe.remove()
  return palette
}

/** "rgb(18, 52, 86)" -> 0xff563412. */
export function pack(color: string): number {
  const [red = 0, green = 0, blue = 0] = (color.match(/[\d.]+/g) ?? []).map(Number)
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0
}

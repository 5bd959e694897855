/** Names along the heat map's edges: what all regions share is said once, not a hundred times. */

/** The longest part that ends with a dot and begins every name; "" where one name would vanish. */
export function commonPrefix(names: readonly string[]): string {
  if (names.length < 2) return ''
  let prefix = names[0]!
  for (const name of names) {
    while (!name.startsWith(prefix)) prefix = prefix.slice(0, prefix.lastIndexOf('.', prefix.length - 2) + 1)
  }
  prefix = prefix.slice(0, prefix.lastIndexOf('.') + 1)
  return names.some((name) => name.length === prefix.length) ? '' : prefix
}

/** The end of a text that fits: of two layer paths the ends differ. `measure` gives pixels. */
export function fitEnd(text: string, pixels: number, measure: (text: string) => number): string {
  if (measure(text) <= pixels) return text
  let [low, high] = [0, text.length]
  while (low < high) {
    const keep = Math.ceil((low + high) / 2)
    if (measure('…' + text.slice(text.length - keep)) <= pixels) low = keep
    else high = keep - 1
  }
  return low === 0 ? '' : '…' + text.slice(text.length - low)
}

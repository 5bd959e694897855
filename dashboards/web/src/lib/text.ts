/** Names that come from a stranger's training process, made fit to be shown: bounded, visible, one line. */

const ESCAPE_LIMIT = 4096

/** Of one identifier within a sentence: it must not push the rest of the sentence off the page. */
export const LONGEST_IDENTIFIER = 96

/**
 * Characters that would move, hide or disguise their neighbours, as something visible: control characters as their
 * Unicode pictures, direction overrides and zero-width characters as their code point.
 */
export function visible(text: string): string {
  return text
    .toWellFormed()
    .replace(/[\u0000-\u001f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0)))
    .replace(/\u007f/g, '\u2421')
    .replace(
      /[\u0080-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,
      (c) => `⟨U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}⟩`,
    )
}

/** At most `limit` characters with the middle left out: both ends of a layer path tell more than its middle. */
export function clip(text: string, limit: number): string {
  if (text.length <= limit) return text
  const head = Math.ceil((limit - 1) / 2)
  return `${text.slice(0, head)}…${text.slice(text.length - (limit - 1 - head))}`.toWellFormed()
}

/** At most `limit` characters with the end left out, as one cuts prose. */
export function cut(text: string, limit: number): string {
  return text.length <= limit ? text : `${text.slice(0, limit - 1).trimEnd()}…`.toWellFormed()
}

/** `visible` for the screen: the input is bounded first, so that a name of a megabyte costs nothing. */
export function shown(text: string, limit: number): string {
  return clip(visible(clip(text, ESCAPE_LIMIT)), limit)
}

export interface Piece {
  text: string
  /** An identifier: set in the monospace face. */
  code: boolean
}

// What joins two words in code and not in prose: "blocks.1.weight", "w_0", "model.py:31", "use_reentrant=True", "Shard(1)".
const JOINT = /[\p{L}\p{N}_)\]][._:@=([<]+[\p{L}\p{N}_<([]|_[\p{L}\p{N}]|^[._][\p{L}_]|^\[.*\]$/u
// "e.g", "i.e", "3.1.1", "12:30": joined, and prose all the same.
const PROSE = /^(?:\p{L}\.)+\p{L}$|^[^\p{L}[]+$/u

/** Where the identifier within a word of prose begins and ends: without quotes, commas and half a pair of brackets. */
function trim(word: string): [number, number] {
  let start = 0
  let end = word.length
  while (start < end && /["'(]/.test(word[start]!)) start++
  for (; end > start; end--) {
    const last = word[end - 1]!
    const body = word.slice(start, end)
    const open = last === ')' && body.split('(').length < body.split(')').length
    if (!open && !/[.,;:!?"']/.test(last)) break
  }
  return [start, end]
}

/** A sentence cut into prose and identifiers, so that identifiers can be set in monospace. Nothing is lost or added. */
export function pieces(sentence: string): Piece[] {
  const found: Piece[] = []
  let done = 0
  for (const match of sentence.matchAll(/\S+/g)) {
    const [start, end] = trim(match[0])
    const word = match[0].slice(start, end)
    if (!JOINT.test(word) || PROSE.test(word)) continue
    const at = match.index + start
    if (at > done) found.push({ text: sentence.slice(done, at), code: false })
    found.push({ text: word, code: true })
    done = at + word.length
  }
  if (done < sentence.length) found.push({ text: sentence.slice(done), code: false })
  return found
}

/** A text as its first sentence and what follows: the one is a headline, the other is read after it. */
export function headline(text: string): [string, string] {
  const match = /^.+?(?<!\b(?:e\.g|i\.e|cf|vs))[.!?]\s+(?=[\p{Lu}"'(])/su.exec(text.slice(0, ESCAPE_LIMIT))
  return match ? [match[0].trimEnd(), text.slice(match[0].length)] : [text, '']
}

/** A link that may be followed: http(s) only. Null for anything else a wire may carry. */
export function webLink(url: string | null | undefined): string | null {
  if (!url || url.length > 2048) return null
  try {
    const parsed = new URL(url)
    return parsed.protocol === 'https:' || parsed.protocol === 'http:' ? parsed.href : null
  } catch {
    return null
  }
}

/** Numbers, times and lists of ranks as people read them. */

// Narrow and non-breaking: a number never wraps.
const THIN = '\u202f'

/** 1204 -> "1 204" with a thin space. Null is an en dash: nothing is known. */
export function count(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–'
  const [whole = '', fraction] = String(value).split('.')
  const grouped = whole.replace(/\B(?=(\d{3})+(?!\d))/g, THIN)
  return fraction ? `${grouped}.${fraction}` : grouped
}

/** "1 rank", "2 ranks". */
export function counted(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`
}

/** Seconds in the unit that keeps two or three digits: "0 s", "41 µs", "3.2 ms", "1.5 s", "4 min 05 s", "2 h 10 min", "3 d 4 h". */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return '–'
  if (seconds <= 0) return '0 s'
  if (seconds < 0.9995e-3) return `${digits(seconds * 1e6)} µs`
  if (seconds < 0.9995) return `${digits(seconds * 1e3)} ms`
  if (seconds < 59.95) return `${digits(seconds)} s`
  const whole = Math.round(seconds)
  const minutes = Math.floor(whole / 60)
  if (minutes < 60) return `${minutes} min ${String(whole % 60).padStart(2, '0')} s`
  const hours = Math.floor(minutes / 60)
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, '0')} min`
  return `${count(Math.floor(hours / 24))} d ${hours % 24} h`
}

function digits(value: number): string {
  return value < 9.95 ? value.toFixed(1) : String(Math.round(value))
}

/** How long ago, coarse on purpose: "now", "12 s ago", "4 min ago", "3 h ago", "2 d ago". */
export function ago(iso: string | null, now: number): string {
  const at = Date.parse(iso ?? '')
  if (Number.isNaN(at)) return '–'
  const seconds = Math.floor((now - at) / 1000)
  // A collector's clock may be a little ahead; "in 1 s" would only puzzle.
  if (seconds < 2) return 'now'
  if (seconds < 60) return `${seconds} s ago`
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h ago`
  return `${count(Math.floor(seconds / 86400))} d ago`
}

/** Local time to the second, with the date only where it is not today: "14:03:22", "30 Nov 14:03:22". */
export function clock(iso: string | null, now: number): string {
  const at = new Date(iso ?? '')
  if (Number.isNaN(at.getTime())) return '–'
  const pad = (n: number): string => String(n).padStart(2, '0')
  const time = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`
  const today = new Date(now)
  if (at.toDateString() === today.toDateString()) return time
  const month = at.toLocaleString('en', { month: 'short' })
  const year = at.getFullYear() === today.getFullYear() ? '' : ` ${at.getFullYear()}`
  return `${at.getDate()} ${month}${year} ${time}`
}

/** Part of a whole: "0 %", "0.02 %", "3.1 %", "41 %"; never "0 %" for something that is not nothing. */
export function share(part: number): string {
  if (!Number.isFinite(part)) return '–'
  const percent = part * 100
  if (percent === 0) return '0 %'
  if (percent < 0.01) return '< 0.01 %'
  if (percent < 1) return `${Math.round(percent * 100) / 100} %`
  return `${digits(percent)} %`
}

/** Sorted, runs joined, at most `limit` items: [0,1,2,5] -> "0–2, 5"; then "… and 12 more". */
export function ranges(numbers: readonly number[], limit = 8): string {
  const sorted = [...new Set(numbers)].sort((a, b) => a - b)
  const parts: string[] = []
  let shown = 0
  for (let i = 0; i < sorted.length && parts.length < limit; ) {
    let j = i
    while (j + 1 < sorted.length && sorted[j + 1] === sorted[j]! + 1) j++
    const [from, to] = [sorted[i]!, sorted[j]!]
    if (to === from) parts.push(count(from))
    else if (to === from + 1) parts.push(count(from), count(to))
    else parts.push(`${count(from)}–${count(to)}`)
    shown += j - i + 1
    i = j + 1
  }
  if (!parts.length) return '–'
  const more = sorted.length - shown
  return parts.join(', ') + (more ? ` and ${count(more)} more` : '')
}

/** "Rank 3", "Ranks 0–7". */
export function ranksPhrase(ranks: readonly number[], limit = 8): string {
  if (!ranks.length) return 'No rank'
  return `${ranks.length === 1 ? 'Rank' : 'Ranks'} ${ranges(ranks, limit)}`
}

/** A command as one would type it: words with anything unusual in single quotes. */
export function commandLine(words: readonly string[]): string {
  return words.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`)).join(' ')
}

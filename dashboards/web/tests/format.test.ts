import { describe, expect, it } from 'vitest'
import { ago, commandLine, count, counted, duration, ranges, ranksPhrase, share } from '../src/lib/format'

describe('count', () => {
  it('separates thousands by a thin space that does not wrap', () => {
    expect(count(1204)).toBe('1\u202f204')
    expect(count(90_240_000_000)).toBe('90\u202f240\u202f000\u202f000')
    expect(count(999)).toBe('999')
    expect(count(-1234)).toBe('-1\u202f234')
  })
  it('says nothing where nothing is known', () => {
    for (const value of [null, undefined, NaN, Infinity]) expect(count(value)).toBe('–')
  })
  it('agrees with its noun', () => {
    expect(counted(1, 'rank')).toBe('1 rank')
    expect(counted(0, 'rank')).toBe('0 ranks')
  })
})

describe('duration', () => {
  it.each([
    [0, '0 s'],
    [0.000041, '41 µs'],
    [0.0032, '3.2 ms'],
    [0.999, '999 ms'],
    [0.9999, '1.0 s'],
    [1.5, '1.5 s'],
    [59.96, '1 min 00 s'],
    [245, '4 min 05 s'],
    [7800, '2 h 10 min'],
    [3 * 86400 + 4 * 3600, '3 d 4 h'],
    [null, '–'],
  ])('%s is %s', (seconds, text) => expect(duration(seconds)).toBe(text))
})

describe('ago', () => {
  const now = Date.parse('2026-11-30T12:00:00Z')
  it.each([
    ['2026-11-30T12:00:05Z', 'now'],
    ['2026-11-30T11:59:48Z', '12 s ago'],
    ['2026-11-30T11:56:00Z', '4 min ago'],
    ['2026-11-30T09:00:00Z', '3 h ago'],
    ['2026-11-20T12:00:00Z', '10 d ago'],
    ['not a time', '–'],
  ])('%s is %s', (iso, text) => expect(ago(iso, now)).toBe(text))
})

describe('share', () => {
  it('never calls something nothing', () => {
    expect(share(0)).toBe('0 %')
    expect(share(0.00000001)).toBe('< 0.01 %')
    expect(share(0.0026)).toBe('0.26 %')
    expect(share(0.41)).toBe('41 %')
  })
})

describe('ranges', () => {
  it('joins runs and leaves pairs apart', () => {
    expect(ranges([0, 1, 2, 5])).toBe('0–2, 5')
    expect(ranges([1, 0])).toBe('0, 1')
    expect(ranges([])).toBe('–')
  })
  it('counts what it leaves out', () => {
    expect(ranges([0, 2, 4, 6, 8], 2)).toBe('0, 2 and 3 more')
  })
  it('tells ten thousand ranks in a word', () => {
    expect(ranksPhrase(Array.from({ length: 10_000 }, (_, i) => i))).toBe('Ranks 0–9\u202f999')
  })
})

describe('commandLine', () => {
  it('can be pasted into a shell', () => {
    expect(commandLine(['python', 'a b.py', "it's", '--lr=1e-3'])).toBe("python 'a b.py' 'it'\\''s' --lr=1e-3")
  })
})

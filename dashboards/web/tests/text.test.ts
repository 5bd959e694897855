import { describe, expect, it } from 'vitest'
import { clip, cut, headline, pieces, shown, visible, webLink } from '../src/lib/text'

const code = (sentence: string): string[] => pieces(sentence).flatMap((piece) => (piece.code ? [piece.text] : []))

describe('visible', () => {
  it('shows what would hide or turn its neighbours', () => {
    expect(visible('a\u0000b\u0007\u007f')).toBe('a␀b␇␡')
    expect(visible('\u202egnp.exe')).toBe('⟨U+202E⟩gnp.exe')
    expect(visible('zero\u200bwidth')).toBe('zero⟨U+200B⟩width')
  })
  it('keeps other scripts and mends half a surrogate pair', () => {
    expect(visible('مرحبا 模型')).toBe('مرحبا 模型')
    expect(visible('\ud800')).toBe('\ufffd')
  })
})

describe('clip', () => {
  it('keeps both ends within the limit', () => {
    expect(clip('model.layers.0.mlp.weight', 11)).toBe('model…eight')
    expect(clip('short', 11)).toBe('short')
  })
  it('cuts prose at its end', () => {
    expect(cut('one two three', 9)).toBe('one two…')
    expect(cut('short', 9)).toBe('short')
  })
  it('bounds a megabyte, also one that grows when made visible', () => {
    expect(shown('x'.repeat(1 << 20), 80)).toHaveLength(80)
    expect(shown('\u202e'.repeat(1 << 20), 80)).toHaveLength(80)
  })
})

describe('pieces', () => {
  it('finds identifiers', () => {
    expect(code('Rank 3 lost placements of w_0 in layers.7 since step 12; last clean step 11.')).toEqual(['w_0', 'layers.7'])
    expect(code('See model.py:31 (ctx.weight = w), or use_reentrant=True.')).toEqual(['model.py:31', 'ctx.weight', 'use_reentrant=True'])
    expect(code('from [Shard(1)] to [], reading .main_grad')).toEqual(['[Shard(1)]', '[]', '.main_grad'])
  })
  it('leaves prose alone', () => {
    expect(code('Healthy, step 1,204, 8 ranks. Paddle 3.1.1, e.g. at 12:30: forward/backward, two-rank job.')).toEqual([])
  })
  it('loses and adds nothing', () => {
    for (const text of ['', '  ', '(a.b)', 'a.b. c_d, "e=f"?', '...', '[Shard(1), Replicate()]']) {
      expect(pieces(text).map((piece) => piece.text).join('')).toBe(text)
    }
  })
})

describe('headline', () => {
  it.each([
    ['Rank 0: w in blocks.0 lost it (e.g. here). Use x.clone(). And 1 more finding.', 'Rank 0: w in blocks.0 lost it (e.g. here).'],
    ['Healthy, step 1,204, 8 ranks.', 'Healthy, step 1,204, 8 ranks.'],
    ['See model.py for it, version 3.1.1 and later', 'See model.py for it, version 3.1.1 and later'],
    ['Is it so? "Yes." It is.', 'Is it so?'],
  ])('of %s', (text, first) => {
    const [head, rest] = headline(text)
    expect(head).toBe(first)
    expect(`${head} ${rest}`.trimEnd()).toBe(text)
  })
})

describe('webLink', () => {
  it('follows http and https only', () => {
    expect(webLink('https://example.org/pull/1')).toBe('https://example.org/pull/1')
    for (const url of ['javascript:alert(1)', 'data:text/html,x', '//host', 'nonsense', '', null]) expect(webLink(url)).toBeNull()
  })
})

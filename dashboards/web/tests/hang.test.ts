import { describe, expect, it } from 'vitest'
import { hangOf } from '../src/lib/hang'

describe('the evidence of a hang', () => {
  it('is read', () => {
    const hang = hangOf({
      waiting: [{ rank: 0, in: 'all_reduce', at: 'train.py:9', region: null, since_ns: 1e18, for: [1] }],
      awaited: [{ rank: 1, does: 'is in another call', at: null, root: false }, { rank: 2, does: 'sleeps', at: 'train.py:51', root: true }],
      ranks: [{ rank: 0, pid: 7, does: 'waits', at: 'train.py:9', last: 'at step 3', changed_ns: 1e18, cpu_seconds: 0.1 }],
      stacks: [{ ranks: [0], thread: 'MainThread', frames: ['main (train.py:51)'] }],
      no_stacks: [],
    })
    expect(hang.waiting[0]).toEqual({ rank: 0, what: 'all_reduce', at: 'train.py:9', region: null, since: '2001-09-09T01:46:40.000Z', awaits: [1] })
    expect(hang.awaited.map((one) => one.rank)).toEqual([2, 1])
    expect(hang.ranks[0]?.since).toBe('2001-09-09T01:46:40.000Z')
    expect(hang.stacks[0]?.frames).toEqual(['main (train.py:51)'])
  })

  it.each([{}, { waiting: 'x', ranks: [null, 3, { rank: 'y' }], stacks: [null, {}] }, { waiting: [{ rank: 1, since_ns: 1e30 }] }])(
    'is read as far as it goes: %j',
    (detail) => {
      const hang = hangOf(detail)
      expect(hang.ranks).toEqual([])
      expect(hang.waiting.every((one) => one.since === null)).toBe(true)
    },
  )
})

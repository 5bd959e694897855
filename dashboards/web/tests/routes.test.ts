import { describe, expect, it } from 'vitest'
import { parent, parse, urls, type Route } from '../src/lib/routes'

const through = (url: string): Route => {
  const [path = '', search = ''] = url.split('?')
  return parse(path, search)
}

describe('routes', () => {
  it.each<[string, Route]>([
    [urls.runs(), { page: 'runs' }],
    [urls.run('nightly-7'), { page: 'run', run: 'nightly-7', attempt: null }],
    [urls.run('a/b?c#d%20e', 2), { page: 'run', run: 'a/b?c#d%20e', attempt: 2 }],
    [urls.hang('a/b', 1), { page: 'hang', run: 'a/b', attempt: 1 }],
    [urls.region('r', null, 'blocks.1@x.py:3', 4), { page: 'region', run: 'r', attempt: null, region: 'blocks.1@x.py:3', rank: 4 }],
    [urls.alert('9f2c'), { page: 'alert', fingerprint: '9f2c' }],
    [urls.rules(), { page: 'rules' }],
    [urls.rule('CT105'), { page: 'rule', rule: 'CT105' }],
  ])('%s comes back as it went', (url, route) => expect(through(url)).toEqual(route))

  it('survives half a surrogate pair and broken escapes', () => {
    expect(through(urls.run('\ud800'))).toEqual({ page: 'run', run: '\ufffd', attempt: null })
    expect(parse('/runs/%E0%A4')).toEqual({ page: 'missing', path: '/runs/%E0%A4' })
  })

  it.each(['/nowhere', '/runs', '/runs/a/b', '/alerts', '/rules/CT105/x', '/runs/a/regions/'])('%s is missing', (path) => {
    expect(parse(path).page).toBe('missing')
  })

  it('takes a slash at the end', () => expect(parse('/rules/').page).toBe('rules'))

  it('knows the page above', () => {
    expect(parent(parse('/'))).toBeNull()
    expect(parent(parse('/runs/r/regions/x'))).toBe('/runs/r')
    expect(parent(parse('/rules/CT105'))).toBe('/rules')
    expect(parent(parse('/nowhere'))).toBe('/')
  })
})

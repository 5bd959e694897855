/** URLs of the page, both ways. Pure: the browser's history is in router.svelte.ts. */

export type Route =
  | { page: 'runs' }
  | { page: 'run'; run: string; attempt: number | null }
  | { page: 'hang'; run: string; attempt: number | null }
  | { page: 'region'; run: string; attempt: number | null; region: string; rank: number | null }
  | { page: 'alert'; fingerprint: string }
  | { page: 'rules' }
  | { page: 'rule'; rule: string }
  | { page: 'missing'; path: string }

/** One path segment from any text, half a surrogate pair included (encodeURIComponent throws on one). */
export function segment(text: string): string {
  return encodeURIComponent(text.toWellFormed())
}

function wholeNumber(text: string | null): number | null {
  return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : null
}

export function parse(path: string, search = ''): Route {
  const missing: Route = { page: 'missing', path }
  let parts: string[]
  try {
    parts = path.split('/').slice(1).map(decodeURIComponent)
  } catch {
    return missing
  }
  if (parts.length > 1 && parts.at(-1) === '') parts.pop()
  const parameters = new URLSearchParams(search)
  const attempt = wholeNumber(parameters.get('attempt'))
  const [head, id, tail, name] = parts
  if (parts.length === 1 && head === '') return { page: 'runs' }
  if (head === 'runs' && id && parts.length === 2) return { page: 'run', run: id, attempt }
  if (head === 'runs' && id && tail === 'hang' && parts.length === 3) return { page: 'hang', run: id, attempt }
  if (head === 'runs' && id && tail === 'regions' && name && parts.length === 4) {
    return { page: 'region', run: id, attempt, region: name, rank: wholeNumber(parameters.get('rank')) }
  }
  if (head === 'alerts' && id && parts.length === 2) return { page: 'alert', fingerprint: id }
  if (head === 'rules' && parts.length === 1) return { page: 'rules' }
  if (head === 'rules' && id && parts.length === 2) return { page: 'rule', rule: id }
  return missing
}

function withQuery(path: string, parameters: Record<string, number | null>): string {
  const pairs = Object.entries(parameters).filter(([, value]) => value !== null)
  return pairs.length ? `${path}?${pairs.map(([key, value]) => `${key}=${value}`).join('&')}` : path
}

export const urls = {
  runs: (): string => '/',
  run: (run: string, attempt: number | null = null): string => withQuery(`/runs/${segment(run)}`, { attempt }),
  hang: (run: string, attempt: number | null = null): string => withQuery(`/runs/${segment(run)}/hang`, { attempt }),
  region: (run: string, attempt: number | null, region: string, rank: number | null): string =>
    withQuery(`/runs/${segment(run)}/regions/${segment(region)}`, { attempt, rank }),
  alert: (fingerprint: string): string => `/alerts/${segment(fingerprint)}`,
  rules: (): string => '/rules',
  rule: (rule: string): string => `/rules/${segment(rule)}`,
}

/** Where Esc and the breadcrumb lead. Null on the first page. */
export function parent(route: Route): string | null {
  switch (route.page) {
    case 'runs':
      return null
    case 'hang':
    case 'region':
      return urls.run(route.run, route.attempt)
    case 'rule':
      return urls.rules()
    default:
      return urls.runs()
  }
}

/** An alert as plain text, for an issue or a chat. */
import type { Alert } from './api/types'
import { cellText, compare, SIDES } from './facts'
import { count, counted, ranksPhrase } from './format'
import { visible } from './text'

export function stepPhrase(alert: Pick<Alert, 'step'>): string {
  const { first, last } = alert.step
  if (first === null && last === null) return 'step not known'
  if (first === null || last === null || first === last) return `step ${count(first ?? last)}`
  return `steps ${count(first)}–${count(last)}`
}

export function alertText(alert: Alert, url: string): string {
  const lines = [
    `${alert.rule} ${alert.slug} (${alert.severity}, ${alert.state})`,
    alert.message,
    '',
    `Run: ${alert.run}, attempt ${alert.attempt}`,
    `${ranksPhrase(alert.ranks, 32)}, ${stepPhrase(alert)}, ${counted(alert.count, 'time')}`,
  ]
  if (alert.last_clean_step !== null) lines.push(`Last clean step: ${count(alert.last_clean_step)}`)
  if (alert.region) {
    const source = alert.region.source ? ` at ${alert.region.source}` : ''
    lines.push(`Region: ${alert.region.name} (${alert.region.mode})${source}${alert.slot === null ? '' : `, slot ${alert.slot}`}`)
  }
  const tensor = [alert.tensor?.name, alert.tensor?.layer && `layer ${alert.tensor.layer}`, alert.tensor?.role].filter(Boolean)
  if (tensor.length) lines.push(`Tensor: ${tensor.join(', ')}`)
  const rows = compare(alert)
  if (rows.length) {
    const table = [['', ...SIDES], ...rows.map((row) => [`${row.differs ? '≠' : ' '} ${row.fact}`, ...SIDES.map((side) => cellText(row.cells[side]))])]
    const widths = table[0]!.map((_, i) => Math.max(...table.map((line) => line[i]!.length)))
    lines.push('', ...table.map((line) => line.map((text, i) => text.padEnd(widths[i]!)).join('  ').trimEnd()))
  }
  if (alert.cause) lines.push('', `Likely cause: ${alert.cause}`)
  if (alert.remedy) lines.push('', `What to do: ${alert.remedy}`)
  if (alert.known_issue) {
    const { id, title, url: link, fixed_in } = alert.known_issue
    lines.push('', `Known issue ${id}: ${title}${fixed_in ? `, fixed in ${fixed_in}` : ''}${link ? `\n${link}` : ''}`)
  }
  lines.push('', url)
  return lines.map(visibleLine).join('\n')
}

function visibleLine(line: string): string {
  return line.split('\n').map(visible).join('\n')
}

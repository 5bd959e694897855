/** From a cell of the heat map to what it is about. */
import type { Alert, HeatRegion } from '../api/types'
import { SEVERITIES } from '../severity'

/** The worst firing alert of that region and rank. */
export function alertAt(alerts: readonly Alert[], region: HeatRegion, rank: number): Alert | undefined {
  let found: Alert | undefined
  for (const alert of alerts) {
    if (alert.state !== 'firing' || alert.region?.name !== region.name || alert.region.mode !== region.mode) continue
    if (found && SEVERITIES.indexOf(alert.severity) >= SEVERITIES.indexOf(found.severity)) continue
    if (alert.ranks.includes(rank)) found = alert
  }
  return found
}

// Runs before the first paint, so that a chosen theme does not flash. The rest is in src/lib/theme.svelte.ts.
try {
  const theme = localStorage.getItem('ctx-tracer.theme')
  if (theme === 'dark' || theme === 'light') document.documentElement.dataset.theme = theme
} catch {
  // Storage is off: the system's theme stays.
}

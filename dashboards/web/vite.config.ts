import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig } from 'vitest/config'

// CTX_TRACER_COLLECTOR: where `npm run dev` finds a collector, so that the page can be worked on against real runs.
const collector = process.env['CTX_TRACER_COLLECTOR'] ?? 'http://127.0.0.1:4318'

export default defineConfig({
  plugins: [svelte()],
  build: {
    outDir: '../../server/ctx_collector/static',
    emptyOutDir: true,
    // The collector's policy allows nothing inline: no data: images, no preload shim.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: 'es2022',
  },
  server: { proxy: { '/api': collector } },
  test: { include: ['tests/**/*.test.ts'] },
})

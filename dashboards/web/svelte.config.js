import { vitePreprocess } from '@sveltejs/vite-plugin-svelte'

export default {
  preprocess: vitePreprocess(),
  compilerOptions: {
    runes: true,
    // Styles come as one file: an injected <style> would need 'unsafe-inline'.
    css: 'external',
  },
}

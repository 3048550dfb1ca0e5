// The colours of stacks, for the worker's pictures and for the page's own.
'use strict';

const COLOURS = 28;

// Colours of stacks as pixels, in two shades that alternate between lives; what a search does not match fades.
class Look {
  constructor(stackCount, dark) {
    this.dark = dark;
    this.matches = null;
    this.shades = [new Uint32Array(COLOURS), new Uint32Array(COLOURS)];
    for (let index = 0; index < COLOURS; index++) {
      const hue = index * 360 * 0.61803398875 % 360;
      for (const shade of [0, 1]) {
        const light = (dark ? 0.46 : 0.62) + shade * (dark ? 0.06 : 0.05) + (index % 3 - 1) * 0.04;
        this.shades[shade][index] = pixel(hue, dark ? 0.48 : 0.58, light);
      }
    }
    this.faded = dark ? 0xff3a322c : 0xffe4dfdb;
    this.number = Uint8Array.from({ length: stackCount }, (_, stack) => stack === 0 ? 0 : (Math.imul(stack, 0x9e3779b1) >>> 7) % COLOURS);
  }
  colour(stack, life) {
    if (this.matches !== null && !this.matches[stack]) return this.faded;
    return this.shades[life & 1][this.number[stack]];
  }
  edge(colour) {
    return (colour >>> 1 & 0x7f7f7f | 0xff000000) >>> 0;
  }
}

// A pixel in memory order (red first) from hue, saturation and lightness.
function pixel(hue, saturation, lightness) {
  const channel = offset => {
    const place = (offset + hue / 30) % 12;
    const level = lightness - saturation * Math.min(lightness, 1 - lightness) * Math.max(-1, Math.min(place - 3, 9 - place, 1));
    return Math.round(level * 255);
  };
  return (0xff000000 | channel(4) << 16 | channel(8) << 8 | channel(0)) >>> 0;
}

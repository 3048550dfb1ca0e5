// Everything that is text: details of a life, tables of stacks, cards of failed requests, the comparison.
'use strict';

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (name === 'style') made.style.cssText = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function facts(rows) {
  return element('dl', {}, ...rows.flatMap(([name, value]) => [element('dt', {}, name), element('dd', {}, value)]));
}

class Names {
  constructor(texts, frames, stacks) {
    Object.assign(this, { texts, frames, stacks, all: false });
  }
  // The frames of the program, or all of them; all too where none is the program's own.
  shown(stack) {
    const frames = Array.from(this.stacks[stack] ?? []);
    const own = this.all ? frames : frames.filter(frame => this.frames.own[frame]);
    return own.length ? own : frames;
  }
  frame(frame) {
    const file = this.texts[this.frames.file[frame]] ?? '', name = this.texts[this.frames.name[frame]] ?? '', line = this.frames.line[frame];
    return { name, file, line, short: file ? `${file.split('/').pop()}:${line} ${name}` : name };
  }
  // The innermost frames in a line.
  summary(stack, most = 3) {
    const frames = this.shown(stack);
    if (!frames.length) return '(no stack recorded)';
    return Array.from(frames.slice(0, most), frame => this.frame(frame).short).join('  <  ') + (frames.length > most ? '  < ...' : '');
  }
  list(stack, search) {
    const shown = this.shown(stack), hidden = (this.stacks[stack]?.length ?? 0) - shown.length;
    const frames = shown.map(frame => this.frame(frame));
    if (!frames.length) return element('p', { class: 'faint' }, 'No stack was recorded. Record one with _record_memory_history.');
    const notes = [];
    if (hidden) notes.push(`${humanCount(hidden)} frames of libraries are hidden (F shows all).`);
    if (frames.every(({ line }) => !line)) notes.push('Files and lines need a program that is built with line tables (debug = "line-tables-only").');
    return element('ol', { class: 'stack' }, ...notes.map(note => element('p', { class: 'faint' }, note)), ...frames.map(({ name, file, line }) => element(
      'li', search && `${file}:${line}:${name}`.toLowerCase().includes(search) ? { class: 'match' } : {},
      name, ...(file ? [element('small', {}, `${file}:${line}`)] : []))));
  }
}

function lifeDetails(life, names, search, first) {
  const moment = (entry, time, otherwise) => entry < 0 ? otherwise : `entry ${humanCount(entry)}, ${humanTime(time - first)}`;
  return [
    element('h2', {}, `Allocation of ${humanBytes(life.size)}`),
    facts([
      ['bytes', humanCount(life.size)], ['address', `0x${life.address.toString(16)}`],
      ['stream', life.stream === 0 ? 'default' : `0x${life.stream.toString(16)}`],
      ['from', moment(life.begin, life.beginTime, 'before the history')], ['to', moment(life.end, life.endTime, 'still there')],
      ...(life.begin >= 0 && life.end >= 0 ? [['lived', humanTime(life.endTime - life.beginTime)]] : []),
    ]),
    names.list(life.stack, search),
  ];
}

function blockDetails(segment, block, names, search, streams) {
  const { blocks } = segment, state = ['free', 'in use', 'freed, waiting for a stream'][blocks.state[block]];
  return [
    element('h2', {}, `Block of ${humanBytes(blocks.size[block])}, ${state}`),
    facts([
      ['address', `0x${blocks.address[block].toString(16)}`], ['bytes', humanCount(blocks.size[block])],
      ...(blocks.state[block] ? [['asked for', humanCount(blocks.requested[block])]] : []),
      ['segment', `0x${segment.address.toString(16)}, ${humanBytes(segment.size)}`],
      ['stream', streams[segment.stream] === 0 ? 'default' : `0x${streams[segment.stream].toString(16)}`],
      ['pool', segment.pool.join('.')],
    ]),
    ...(blocks.state[block] ? [names.list(blocks.stack[block], search)] : []),
  ];
}

function sumsOf(rows) {
  return element('div', { class: 'sums' }, ...rows.map(([name, value]) => element('div', {}, element('b', {}, value), name)));
}

// Rows of stacks with what they hold at a moment.
function holdersTable(held, names, colour, choose, chosen) {
  const most = held.rows[0]?.bytes ?? 1;
  const rows = held.rows.map(row => element(
    'tr', { onclick: () => choose(row.stack), ...(row.stack === chosen ? { class: 'chosen' } : {}) },
    element('td', {}, element('span', { class: 'bar', style: `width:${Math.max(2, row.bytes / most * 120)}px;background:${colour(row.stack)}` }), humanBytes(row.bytes)),
    element('td', {}, `${(100 * row.bytes / Math.max(1, held.live)).toFixed(1)} %`), element('td', {}, humanCount(row.blocks)),
    element('td', { class: 'frames' }, names.summary(row.stack))));
  return [
    sumsOf([['at entry', humanCount(held.moment)], ['in use', humanBytes(held.live)], ['reserved', humanBytes(held.reserved)], ['stacks', humanCount(held.stacks)]]),
    element('p', { class: 'faint' }, 'Shown at the moment that was last clicked in the timeline, else at the peak. Click a row to see where it is.'),
    element('table', {}, element('thead', {}, element('tr', {}, ...['bytes', 'share', 'blocks'].map(name => element('th', {}, name)), element('th', { class: 'frames' }, 'stack, innermost first'))), element('tbody', {}, ...rows)),
  ];
}

function shortageCards(shortages, names, go) {
  if (!shortages.length) return [element('p', { class: 'faint' }, 'Every request of the history could be served.')];
  return [...shortages].reverse().map(one => element(
    'div', { class: 'card', onclick: () => go(one) },
    element('p', {}, element('b', {}, `${humanBytes(one.requested)} could not be had`), ` at entry ${humanCount(one.entry)} of device ${one.device}`),
    element('p', {}, `Why: ${one.reason}.`),
    element('p', { class: 'faint' }, `${humanBytes(one.live)} in use, ${humanBytes(one.reserved)} reserved, ${humanBytes(one.device_free)} left on the device`),
    element('p', { class: 'faint' }, names.summary(one.stack, 6))));
}

function comparison(compare, now, title, search, all) {
  if (!compare) return [element('p', { class: 'faint' }, 'One snapshot is shown. Give a second one to `memory_viz::page` to compare them.')];
  const change = (before, after) => {
    const bytes = after - before;
    return element('span', { class: bytes > 0 ? 'grew' : bytes < 0 ? 'shrank' : '' }, `${bytes > 0 ? '+' : ''}${humanBytes(bytes)}`);
  };
  const sums = [['reserved', 'reserved'], ['allocated', 'in use'], ['free', 'free'], ['largest_free', 'largest free block']];
  const rows = compare.rows.filter(row => !search || row.frames.some(frame => frame.toLowerCase().includes(search))).slice(0, 1000);
  return [
    element('h2', {}, `${compare.title} -> ${title}`),
    element('div', { class: 'sums' }, ...sums.map(([key, name]) => element('div', {}, element('b', {}, humanBytes(now[key])), name, ' ', change(compare.before[key], now[key])))),
    element('p', { class: 'faint' }, `Segments: ${humanCount(compare.only_before[0])} of the first alone (${humanBytes(compare.only_before[1])}), ${humanCount(compare.only_after[0])} of the second alone (${humanBytes(compare.only_after[1])}).`
      + (compare.left_out ? ` ${humanCount(compare.left_out)} stacks that changed less are left out.` : '')),
    element('table', {}, element('thead', {}, element('tr', {}, ...['change', 'before', 'after', 'blocks'].map(name => element('th', {}, name)), element('th', { class: 'frames' }, 'stack, innermost first'))),
      element('tbody', {}, ...rows.map(row => element('tr', {},
        element('td', {}, change(row.before[0], row.after[0])), element('td', {}, humanBytes(row.before[0])), element('td', {}, humanBytes(row.after[0])),
        element('td', {}, `${humanCount(row.before[1])} -> ${humanCount(row.after[1])}`),
        element('td', { class: 'frames' }, (all ? row.frames : row.own.map(at => row.frames[at])).slice(0, 4).join('  <  ') || '(no stack recorded)'))))),
  ];
}

const KEYS = [
  ['1 ... 6', 'the views'], ['Left Right, A D', 'move along the axis'], ['Up Down, W S', 'nearer, farther'],
  ['wheel', 'nearer, farther, at the pointer; with Shift in height'], ['drag', 'move'], ['click', 'hold an allocation and its moment'],
  ['double click', 'all of the life of an allocation'], ['0, Home', 'everything'], ['N, P', 'the next, the last request that failed'],
  ['/', 'search'], ['Esc', 'let go of what is held or searched'], ['X', 'entries or time along the axis'], ['L', 'light or dark'], ['F', 'frames of the program, or all'], ['?', 'this'],
];

function keysHelp(close) {
  return [element('h2', {}, 'Keys'), facts(KEYS.map(([keys, what]) => [element('kbd', {}, keys), what])), element('button', { onclick: close }, 'Close')];
}

// Unpacks the row of bytes that src/page/pack.rs writes into arrays of numbers. Runs in the worker.
'use strict';

const ALLOC = 0, FREE_REQUESTED = 1, FREE_COMPLETED = 2, SEGMENT_ALLOC = 3, SEGMENT_FREE = 4, SEGMENT_MAP = 5,
  SEGMENT_UNMAP = 6, SNAPSHOT = 7, OUT_OF_MEMORY = 8, ENDS = 9, OTHER = 10;

function bytesOfBase64(text) {
  const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
  const values = new Uint8Array(128);
  for (let index = 0; index < 64; index++) values[letters.charCodeAt(index)] = index;
  let length = text.length;
  while (length > 0 && text.charCodeAt(length - 1) === 61) length--;
  const bytes = new Uint8Array(Math.floor(length * 3 / 4));
  let out = 0;
  for (let at = 0; at < length; at += 4) {
    const bits = values[text.charCodeAt(at)] << 18 | values[text.charCodeAt(at + 1)] << 12
      | values[at + 2 < length ? text.charCodeAt(at + 2) : 65] << 6 | values[at + 3 < length ? text.charCodeAt(at + 3) : 65];
    bytes[out++] = bits >> 16;
    bytes[out++] = bits >> 8 & 255;
    bytes[out++] = bits & 255;
  }
  return bytes;
}

class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }
  number() {
    let byte = this.bytes[this.at++];
    if (byte < 128) return byte;
    let value = byte & 127, unit = 128;
    do {
      byte = this.bytes[this.at++];
      value += (byte & 127) * unit;
      unit *= 128;
    } while (byte > 127);
    return value;
  }
  // 0, 1, 2, 3 stand for 0, -1, 1, -2.
  signed() {
    const folded = this.number();
    return folded % 2 ? -(folded + 1) / 2 : folded / 2;
  }
}

function unpack(text) {
  const reader = new Reader(bytesOfBase64(text));
  const frameCount = reader.number();
  const frames = { name: new Uint32Array(frameCount), file: new Uint32Array(frameCount), line: new Float64Array(frameCount), own: new Uint8Array(frameCount) };
  for (let index = 0; index < frameCount; index++) {
    frames.name[index] = reader.number();
    frames.file[index] = reader.number();
    frames.line[index] = reader.number();
    frames.own[index] = reader.number();
  }
  const stacks = new Array(reader.number());
  for (let index = 0; index < stacks.length; index++) {
    const stack = new Uint32Array(reader.number());
    for (let place = 0; place < stack.length; place++) stack[place] = reader.number();
    stacks[index] = stack;
  }
  const devices = [];
  while (reader.at < reader.bytes.length) devices.push(unpackDevice(reader));
  return { frames, stacks, devices };
}

function unpackDevice(reader) {
  const streams = Array.from({ length: reader.number() }, () => reader.signed());
  const reservedBefore = reader.number();
  const lifeCount = reader.number(), before = reader.number();
  const lives = {
    count: lifeCount, before,
    address: new Float64Array(lifeCount), size: new Float64Array(lifeCount), stream: new Uint32Array(lifeCount),
    stack: new Uint32Array(lifeCount), begin: new Int32Array(lifeCount).fill(-1), end: new Int32Array(lifeCount),
  };
  let address = 0, born = 0;
  const bear = () => {
    lives.address[born] = address += reader.signed();
    lives.size[born] = reader.number();
    lives.stream[born] = reader.number();
    lives.stack[born] = reader.number();
    return born++;
  };
  while (born < before) bear();
  const count = reader.number();
  lives.end.fill(count);
  const entries = {
    count, kind: new Uint8Array(count), time: new Float64Array(count), life: new Int32Array(count).fill(-1),
    ends: new Map(), names: new Map(), size: new Float64Array(count), stack: new Uint32Array(count), place: new Float64Array(count),
  };
  let time = 0;
  for (let index = 0; index < count; index++) {
    let kind = reader.number();
    if (kind === ENDS) {
      const ended = born - reader.number();
      lives.end[ended] = index;
      entries.ends.set(index, ended);
      kind = reader.number();
    }
    entries.kind[index] = kind;
    entries.time[index] = time += reader.signed();
    if (kind === ALLOC) {
      lives.begin[born] = index;
      entries.life[index] = bear();
    } else if (kind === FREE_REQUESTED || kind === FREE_COMPLETED) {
      const life = born - reader.number();
      entries.life[index] = life;
      if (kind === FREE_COMPLETED) lives.end[life] = index;
    } else if (kind === SNAPSHOT) {
      entries.size[index] = reader.number();
    } else {
      entries.place[index] = address += reader.signed();
      entries.size[index] = reader.number();
      reader.number();
      entries.stack[index] = reader.number();
      if (kind === OTHER) entries.names.set(index, reader.number());
    }
  }
  return { streams, reservedBefore, lives, entries, segments: unpackSegments(reader) };
}

function unpackSegments(reader) {
  const segments = new Array(reader.number());
  let address = 0;
  for (let index = 0; index < segments.length; index++) {
    const segment = {
      address: address += reader.signed(), size: reader.number(), stream: reader.number(),
      pool: [reader.number(), reader.number()],
    };
    const flags = reader.number();
    segment.small = flags % 2 === 1;
    segment.expandable = flags > 1;
    segment.stack = reader.number();
    const count = reader.number();
    segment.blocks = {
      address: new Float64Array(count), size: new Float64Array(count), requested: new Float64Array(count),
      state: new Uint8Array(count), stack: new Uint32Array(count),
    };
    let end = segment.address;
    for (let place = 0; place < count; place++) {
      segment.blocks.address[place] = end += reader.signed();
      end += segment.blocks.size[place] = reader.number();
      segment.blocks.requested[place] = reader.number();
      segment.blocks.state[place] = reader.number();
      segment.blocks.stack[place] = reader.number();
    }
    segments[index] = segment;
  }
  return segments;
}

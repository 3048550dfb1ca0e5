// The history of one device that can be looked at any moment. Runs in the worker.
//
// Moment m is the state after m entries. The lives at a moment form a list in the order they began, so that the newest
// is on top of the picture. The list is kept at every few thousand entries; to get anywhere it is replayed from there.
'use strict';

const ENTRIES_BETWEEN = 2048;

class Engine {
  constructor(device) {
    Object.assign(this, device);
    const count = this.lives.count;
    this.head = count;
    this.tail = count + 1;
    this.next = new Int32Array(count + 2);
    this.previous = new Int32Array(count + 2);
    this.inList = new Uint8Array(count + 2);
    this.marks = [];
    this.moment = 0;
    this.population = 0;
    this.measure();
  }

  // Walks the history once: totals at each moment, and the list at some.
  measure() {
    const { entries, lives } = this, count = entries.count;
    this.live = new Float64Array(count + 1);
    this.reserved = new Float64Array(count + 1);
    let live = 0, reserved = this.reservedBefore;
    this.link(Array.from({ length: lives.before }, (_, index) => index));
    for (let life = 0; life < lives.before; life++) live += lives.size[life];
    this.mark();
    this.live[0] = live;
    this.reserved[0] = reserved;
    let sinceMark = 0;
    this.peak = 0;
    for (let index = 0; index < count; index++) {
      const kind = entries.kind[index], life = entries.life[index];
      if (kind === ALLOC) {
        if (entries.ends.size && entries.ends.has(index)) live -= lives.size[entries.ends.get(index)];
        live += lives.size[life];
      } else if (kind === FREE_COMPLETED) live -= lives.size[life];
      else if (kind === SEGMENT_ALLOC || kind === SEGMENT_MAP) reserved += entries.size[index];
      else if (kind === SEGMENT_FREE || kind === SEGMENT_UNMAP) reserved -= entries.size[index];
      this.step(index);
      this.moment = index + 1;
      this.live[index + 1] = live;
      this.reserved[index + 1] = reserved;
      if (live > this.live[this.peak]) this.peak = index + 1;
      // The room that marks take stays in proportion to the history, however many lives there are at once.
      if (++sinceMark >= ENTRIES_BETWEEN && sinceMark * 8 >= this.population) {
        this.mark();
        sinceMark = 0;
      }
    }
  }

  mark() {
    this.marks.push({ moment: this.moment, list: Uint32Array.from(this.list()) });
  }

  *list() {
    for (let life = this.next[this.head]; life !== this.tail; life = this.next[life]) yield life;
  }

  link(list) {
    this.inList.fill(0);
    let last = this.head;
    for (const life of list) {
      this.next[last] = life;
      this.previous[life] = last;
      this.inList[life] = 1;
      last = life;
    }
    this.next[last] = this.tail;
    this.previous[this.tail] = last;
    this.population = list.length;
  }

  step(index) {
    const kind = this.entries.kind[index];
    if (kind === ALLOC) {
      if (this.entries.ends.size && this.entries.ends.has(index)) this.unlink(this.entries.ends.get(index));
      const life = this.entries.life[index], last = this.previous[this.tail];
      this.next[last] = life;
      this.previous[life] = last;
      this.next[life] = this.tail;
      this.previous[this.tail] = life;
      this.inList[life] = 1;
      this.population++;
    } else if (kind === FREE_COMPLETED) this.unlink(this.entries.life[index]);
  }

  unlink(life) {
    if (!this.inList[life]) return;
    this.inList[life] = 0;
    const before = this.previous[life], after = this.next[life];
    this.next[before] = after;
    this.previous[after] = before;
    this.population--;
  }

  seek(moment) {
    let low = 0, high = this.marks.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.marks[middle].moment <= moment) low = middle; else high = middle - 1;
    }
    const mark = this.marks[low];
    if (this.moment > moment || this.moment < mark.moment) {
      this.link(mark.list);
      this.moment = mark.moment;
    }
    while (this.moment < moment) this.step(this.moment++);
  }

  // The first moment at or after a place on the axis, which counts entries or microseconds.
  momentAt(place, axis) {
    if (axis !== 'time') return Math.max(0, Math.min(this.entries.count, Math.floor(place)));
    const time = this.entries.time;
    let low = 0, high = this.entries.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (time[middle] <= place + time[0]) low = middle + 1; else high = middle;
    }
    return low;
  }

  // For each column of a picture the moment it shows: of all moments that fall into it, the one with the most memory,
  // so that no peak is lost.
  columns(request) {
    const moments = new Int32Array(request.width);
    const unit = (request.to - request.from) / request.width;
    let first = this.momentAt(request.from, request.axis);
    for (let column = 0; column < request.width; column++) {
      const last = this.momentAt(request.from + (column + 1) * unit, request.axis);
      let best = first;
      for (let moment = first + 1; moment < last; moment++) if (this.live[moment] > this.live[best]) best = moment;
      moments[column] = best;
      first = Math.max(first, last);
    }
    return moments;
  }

  // Draws the lives on top of each other, a column of pixels for each moment. Returns pixels in rows.
  render(request, look) {
    const { width, height } = request, moments = this.columns(request);
    const tall = new Uint32Array(width * height);
    let drawn = -1, from = 0, budget = 40e6;
    // Where there are very many lives, neighbouring columns share a picture.
    const share = Math.max(1, Math.ceil(width * this.populationNear(moments[width >> 1]) / budget));
    for (let column = 0; column < width; column++) {
      const moment = column % share ? drawn : moments[column];
      const start = column * height;
      moments[column] = moment;
      if (moment === drawn) {
        tall.copyWithin(start, from, from + height);
        continue;
      }
      this.seek(moment);
      this.column(tall, start, request, look);
      drawn = moment;
      from = start;
    }
    const pixels = new Uint32Array(width * height);
    for (let row = 0; row < height; row++) {
      for (let column = 0, at = height - 1 - row; column < width; column++, at += height) pixels[row * width + column] = tall[at];
    }
    const live = Float64Array.from(moments, moment => this.live[moment]);
    const reserved = Float64Array.from(moments, moment => this.reserved[moment]);
    return { pixels, moments, live, reserved };
  }

  populationNear(moment) {
    this.seek(moment);
    return this.population;
  }

  // One column, lowest byte first.
  column(tall, start, request, look) {
    const { size, stack } = this.lives, next = this.next, tail = this.tail, height = request.height;
    const scale = height / (request.high - request.low), low = request.low, high = request.high;
    let bottom = 0;
    for (let life = next[this.head]; life !== tail && bottom < high; life = next[life]) {
      const top = bottom + size[life];
      if (top > low) {
        const begin = bottom <= low ? 0 : Math.floor((bottom - low) * scale);
        const end = top >= high ? height : Math.floor((top - low) * scale);
        if (end > begin) {
          const colour = look.colour(stack[life], life);
          tall.fill(colour, start + begin, start + end);
          if (end - begin >= 4 && end < height) tall[start + end - 1] = look.edge(colour);
        }
      }
      bottom = top;
    }
  }

  // The life that a picture shows at a moment and a height.
  pick(moment, height) {
    this.seek(moment);
    let bottom = 0;
    for (let life = this.next[this.head]; life !== this.tail; life = this.next[life]) {
      bottom += this.lives.size[life];
      if (height < bottom) return this.describe(life, bottom - this.lives.size[life]);
    }
    return null;
  }

  describe(life, bottom) {
    const { lives, entries } = this, begin = lives.begin[life], end = lives.end[life];
    return {
      life, bottom, address: lives.address[life], size: lives.size[life], stream: this.streams[lives.stream[life]],
      stack: lives.stack[life], begin, end: end === entries.count ? -1 : end,
      beginTime: begin < 0 ? null : entries.time[begin], endTime: end === entries.count ? null : entries.time[end],
    };
  }

  // What each stack holds at a moment, the largest first.
  holders(moment, stackCount, most) {
    this.seek(moment);
    const bytes = new Float64Array(stackCount), blocks = new Uint32Array(stackCount);
    for (let life = this.next[this.head]; life !== this.tail; life = this.next[life]) {
      bytes[this.lives.stack[life]] += this.lives.size[life];
      blocks[this.lives.stack[life]]++;
    }
    const held = [];
    for (let stack = 0; stack < stackCount; stack++) if (blocks[stack]) held.push(stack);
    held.sort((one, other) => bytes[other] - bytes[one]);
    const rows = held.slice(0, most).map(stack => ({ stack, bytes: bytes[stack], blocks: blocks[stack] }));
    return { moment, rows, stacks: held.length, live: this.live[moment], reserved: this.reserved[moment] };
  }
}

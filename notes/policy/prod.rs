//! As the product does it: reclaim in batches ahead of need; a delay line, at whose end the place of a page is decided; pages that lost a challenge wait for reclaim.
use crate::{base::*, synth::Rng};
use std::collections::HashMap;
#[derive(Clone, Default)]
struct Page { uses: u8, stamp: u32, est: Option<f32>, left: u8, left_at: u32, back: bool, near: bool, shrink: bool }
const Y: usize = 0; const W: usize = 1; const M: usize = 2; const B: usize = 3;
pub struct Prod { l: Lists, cap: usize, pages: Vec<Page>, now: u32, misses: u32, unit: u32, left: [u32; 3], target: f64, share: f64, rng: Rng, len_full: usize, full: bool,
    kdiv: usize, ydiv: f64, umax: u8, low: bool, looks: usize, won: u64, lost: u64, grow: f64, fast: f64, shrink: f64, slack: usize, entry: usize, wuse: usize, cheap: f32, hm: f32, eps: f64, wait: Vec<u32> }
impl Prod {
    pub fn new(n: usize, cap: usize, text: &str) -> Self {
        let m: HashMap<&str, f64> = text.split(',').filter_map(|x| x.split_once('=')).map(|(k, v)| (k, v.parse().unwrap())).collect();
        let g = |k: &str, d: f64| *m.get(k).unwrap_or(&d);
        Prod { l: Lists::new(n, 4), cap, pages: vec![Page::default(); n], now: 0, misses: 0, unit: (cap as u32 / g("units", 256.) as u32).max(1), left: [0; 3], target: (cap as f64 / 100.).max(1.), share: 0., rng: Rng(1), len_full: 0, full: false,
            kdiv: g("k", 128.) as usize, ydiv: g("y", 256.), umax: g("uses", 3.) as u8, low: g("low", 1.) > 0., looks: g("looks", 2.) as usize, won: 0, lost: 0, grow: g("grow", 2.), fast: g("fast", 6.), shrink: g("shrink", 1.), slack: g("slack", 0.) as usize, wuse: g("wuse", 1.) as usize, eps: g("eps", 0.), cheap: g("cheap", 0.) as f32, hm: g("hm", 1.) as f32, entry: g("entry", 1.) as usize, wait: vec![] }
    }
    fn k(&self) -> usize { (self.cap / self.kdiv).clamp(1, 64) }
    fn eight_bits(&mut self, x: f32) -> f32 {
        let at = |n: f32| (n / 8.0).exp2();
        let mut n = ((x + 1.0).log2() * 8.0).floor();
        if (self.rng.unit() as f32) < (x + 1.0 - at(n)) / (at(n + 1.0) - at(n)) { n += 1.0 }
        at(n.min(255.0)) - 1.0
    }
    fn main_len(&self) -> usize { self.l.len[M] }
    fn len(&self) -> usize { self.l.len.iter().sum() }
    // Pages that main may hold: of what stays after a pass.
    fn main_max(&self) -> usize { if self.full { self.len_full.saturating_sub(self.k() + self.target as usize) } else { let l = self.len(); l.saturating_sub((l / self.kdiv).clamp(1, 64) + (l / 100).max(1)) } }
    fn room(&self) -> bool { self.main_len() + self.slack < self.main_max() }
    fn leave(&mut self, v: u32, from: usize) { self.left[from] += 1; let at = self.left[from]; let p = &mut self.pages[v as usize]; p.left = from as u8; p.left_at = at }
    fn seen(&mut self, v: u32) -> f32 {
        let p = &self.pages[v as usize];
        let interval = self.now.saturating_sub(p.stamp).max(1) as f32 / p.uses as f32;
        let est = match p.est { None => interval, Some(e) => e + (interval - e) * 0.5 };
        let est = self.eight_bits(est);
        let p = &mut self.pages[v as usize]; (p.est, p.stamp, p.uses) = (Some(est), self.now, 0);
        est
    }
    fn beat(&mut self, est: f32) -> bool {
        for _ in 0..self.looks {
            let v = self.l.pop(M); if v == NIL { return false }
            if self.pages[v as usize].uses > 0 { self.seen(v); self.l.push(M, v); continue }
            let p = &self.pages[v as usize]; let age = (self.now - p.stamp) as f32;
            let its = match p.est { Some(its) if age < 2. * its => age.min(its), _ => age };
            if its > est { self.l.push(B, v); return true }
            self.l.push(M, v);
        }
        false
    }
    fn least(&self) -> f64 { (self.cap as f64 / 100.).max(1.) }
    fn ripen(&mut self, max: usize) { while self.l.len[Y] > max {
        let v = self.l.pop(Y); let i = v as usize;
        self.pages[i].uses = 0;
        let (least, most) = (self.least(), self.cap as f64 * 0.9);
        let g = self.pages[i].clone(); let g2 = &mut self.pages[i]; (g2.back, g2.near, g2.shrink) = (false, false, false);
        if g.shrink { self.target = (self.target - 1.).max(least) }
        if !g.back { let to = if !self.full && self.room() { M } else { W }; self.l.push(to, v); continue }
        if self.room() { self.l.push(M, v); continue }
        if self.beat(g.est.unwrap()) {
            self.won += 1; self.share += (1. - self.share) / 20.; if g.near { self.target = (self.target + if self.share > 0.2 { self.fast } else { self.grow }).min(most) }
            self.l.push(M, v)
        } else {
            self.lost += 1; self.share -= self.share / 20.; if g.near { self.target = (self.target - self.shrink).max(least) }
            self.l.push(W, v)
        }
    } }
    fn pass(&mut self) {
        self.flush();
        let k = self.k(); let mut freed = 0; self.len_full = self.len(); self.full = true;
        while freed < k {
            if self.l.len[W] + self.l.len[B] == 0 { self.ripen(0) }
            if self.len() - self.main_len() <= self.target as usize && self.main_len() > 0 && self.l.len[B] == 0 {
                let mut done = false;
                for _ in 0..16 { let v = self.l.pop(M); if self.pages[v as usize].uses > 0 { self.seen(v); self.l.push(M, v) } else { self.leave(v, 2); done = true; break } }
                if !done { let v = self.l.pop(M); self.leave(v, 2); }
                freed += 1; continue
            }
            let from = if self.l.len[B] > 0 { B } else { W };
            let v = self.l.pop(from);
            if v == NIL { let v = self.l.pop(M); self.leave(v, 2); freed += 1; continue }
            if self.pages[v as usize].uses > 0 {
                if self.wuse == 0 && from == W { self.pages[v as usize].uses = 0; self.pages[v as usize].stamp = self.now; self.leave(v, 1); freed += 1; continue }
                if self.wuse == 6 && from == W && self.pages[v as usize].uses < 2 { self.pages[v as usize].uses = 0; self.pages[v as usize].stamp = self.now; self.leave(v, 1); freed += 1; continue }
                if self.wuse == 7 && from == W && self.target <= self.cheap as f64 * self.least() { self.pages[v as usize].uses = 0; self.pages[v as usize].stamp = self.now; self.leave(v, 1); freed += 1; continue }
                if self.wuse == 8 && from == W && self.pages[v as usize].est.is_none() && self.target <= self.cheap as f64 * self.least() { self.pages[v as usize].uses = 0; self.pages[v as usize].stamp = self.now; self.leave(v, 1); freed += 1; continue }
                if self.wuse == 2 && from == W { self.pages[v as usize].uses = 0; self.pages[v as usize].stamp = self.now; self.l.push(W, v); continue }
                if self.wuse == 3 && from == W && self.pages[v as usize].est.is_none() { self.pages[v as usize].est = Some(3e9); self.pages[v as usize].uses = 0; self.pages[v as usize].stamp = self.now; self.l.push(W, v); continue }
                if self.wuse == 12 && from == W && self.target > self.cheap as f64 * self.least() && self.pages[v as usize].uses >= self.umax { self.seen(v); if !self.room() { self.target = (self.target - 1.).max(self.least()) } self.l.push(M, v); continue }
                if self.wuse == 12 && from == W && self.target <= self.cheap as f64 * self.least() { self.pages[v as usize].uses = 0; self.pages[v as usize].stamp = self.now; self.leave(v, 1); freed += 1; continue }
                if self.wuse == 11 && from == W && self.target > self.cheap as f64 * self.least() && self.pages[v as usize].uses >= self.umax { let est = self.seen(v); if !(self.room() || self.beat(est * self.hm)) { self.target = (self.target - 1.).max(self.least()) } self.l.push(M, v); continue }
                if (self.wuse == 7 || self.wuse == 11) && from == W && self.target <= self.cheap as f64 * self.least() { self.pages[v as usize].uses = 0; self.pages[v as usize].stamp = self.now; self.leave(v, 1); freed += 1; continue }
                if self.wuse == 10 && from == W { if self.target <= self.cheap as f64 * self.least() { self.pages[v as usize].uses = 0; self.pages[v as usize].stamp = self.now; self.leave(v, 1); freed += 1; continue }
                    let est = self.seen(v); if !(self.room() || self.beat(est)) { self.target = (self.target - 1.).max(self.least()) } self.l.push(M, v); continue }
                if self.wuse == 9 && from == W { if self.target <= self.cheap as f64 * self.least() { self.pages[v as usize].uses = 0; self.pages[v as usize].stamp = self.now; self.leave(v, 1); freed += 1; continue }
                    let est = self.seen(v); let to = if self.room() || self.beat(est) { M } else { W }; self.l.push(to, v); continue }
                let est = if self.wuse == 4 && from == W && self.pages[v as usize].est.is_none() { let a = (self.now - self.pages[v as usize].stamp) as f32; let e = self.seen(v); self.pages[v as usize].est = None; e.max(a * self.cheap) } else { self.seen(v) };
                if self.room() || self.beat(est) { self.l.push(M, v); continue }
            }
            if from == W && self.pages[v as usize].est.is_none() { self.target = (self.target - self.eps).max(self.least()) }
            self.leave(v, if from == B { 2 } else { 1 }); freed += 1;
        }
    }
    fn flush(&mut self) { for p in std::mem::take(&mut self.wait) { self.l.len[Y] -= 1; self.l.push(Y, p) } let y = ((self.len() as f64 / self.ydiv) as usize).max(if self.ydiv > 1e5 { 0 } else { 1 }); self.ripen(y) }
}
impl Policy for Prod {
    fn access(&mut self, p: u32) -> bool {
        let i = p as usize;
        if self.l.on[i] < 4 { let u = &mut self.pages[i].uses; if *u < self.umax { *u += 1 } return true }
        self.misses += 1; if self.misses % self.unit == 0 { self.now += self.unit }
        let top = if self.low { self.cap + self.k() } else { self.cap };
        if self.len() >= top { self.pass() }
        let cap = self.cap as f64;
        let g = &self.pages[i]; let (mut back, mut near, mut shrink, mut est) = (false, false, false, None);
        if g.left > 0 {
            let interval = (self.now - g.stamp) as f32;
            near = g.left == 1 && (self.left[1] - g.left_at) as f64 <= cap / 2.;
            shrink = g.left == 2 && (self.left[2] - g.left_at) as f64 <= cap / 4.;
            back = interval <= 16. * cap as f32;
            if back { est = Some(self.eight_bits(match g.est { None => interval * 2., Some(e) => e + (interval - e) / 8. })) }
        }
        self.pages[i] = Page { uses: 0, stamp: self.now, est, back, near, shrink, left: 0, left_at: 0 };
        if self.entry == 1 { self.l.push(Y, p) } else { self.l.on[i] = Y as u8; self.l.len[Y] += 1; self.wait.push(p); if self.wait.len() < self.entry { return false } }
        self.flush();
        false
    }
    fn note(&self) -> String { format!("window {} won {} lost {}", self.target as usize, self.won, self.lost) }
}

use pagefold::*;
use std::time::Instant;
fn rng(s: &mut u64) -> u64 {
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    *s
}
#[inline(never)]
fn hits(f: &File, seq: &[u32]) -> u64 {
    let mut b = [0u8; 8];
    let mut sum = 0u64;
    for &p in seq {
        let o = (p as u64 >> 9) * 4096 + (p as u64 & 511) * 8;
        f.read_at(&mut b, o).unwrap();
        sum = sum.wrapping_add(u64::from_le_bytes(b));
    }
    sum
}
#[inline(never)]
fn pins(f: &File, seq: &[u32]) -> u64 {
    let mut sum = 0u64;
    for &p in seq {
        let g = f.page(p as u64 >> 9).unwrap();
        let at = (p as usize & 511) * 8;
        sum = sum.wrapping_add(u64::from_le_bytes(g[at..at + 8].try_into().unwrap()));
    }
    sum
}
#[inline(never)]
fn arr(v: &[u64], seq: &[u32]) -> u64 {
    let mut sum = 0u64;
    for &p in seq {
        sum = sum.wrapping_add(unsafe { std::ptr::read_volatile(&v[p as usize]) });
    }
    sum
}
fn main() {
    let n = 131072u64;
    let path = "/dev/shm/pf-smoke";
    let mm = Pagefold::builder().memory("600MiB").build().unwrap();
    let g = mm.group("a").build().unwrap();
    let f = g.open(path).unwrap();
    let mut b = [0u8; 8];
    for _ in 0..2 {
        for p in 0..n {
            f.read_at(&mut b, p * 4096).unwrap();
        }
    }
    let mut s = 88172645463325252u64;
    let seq: Vec<u32> = (0..4_000_000).map(|_| (rng(&mut s) % (n * 512)) as u32).collect();
    let v: Vec<u64> = (0..n * 512).collect();
    for _ in 0..5 {
        let t = Instant::now();
        let a = hits(&f, &seq);
        let h = t.elapsed().as_nanos() as f64 / 4e6;
        let t = Instant::now();
        let b = arr(&v, &seq);
        let r = t.elapsed().as_nanos() as f64 / 4e6;
        let t = Instant::now();
        let c = pins(&f, &seq);
        let p = t.elapsed().as_nanos() as f64 / 4e6;
        assert_eq!(a, b);
        assert_eq!(a, c);
        println!("hit {h:.2} array {r:.2} pin {p:.2} ratio {:.2} {:.2}", h / r, p / r);
    }
}

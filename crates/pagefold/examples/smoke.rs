use pagefold::*;
use std::time::Instant;
fn rng(s: &mut u64) -> u64 {
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    *s
}
fn main() {
    let n = 131072u64;
    let path = "/dev/shm/pf-smoke";
    std::fs::write(path, (0..(n * 512)).flat_map(|i: u64| i.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
    let mm = Pagefold::builder().memory("600MiB").build().unwrap();
    let g = mm.group("a").build().unwrap();
    let f = g.open(path).unwrap();
    let t = Instant::now();
    let mut b = [0u8; 8];
    for p in 0..n {
        f.read_at(&mut b, p * 4096).unwrap();
        assert_eq!(u64::from_le_bytes(b), p * 512);
    }
    println!("cold {:?}/page", t.elapsed() / n as u32);
    for p in 0..n {
        f.read_at(&mut b, p * 4096).unwrap();
    }
    let mut s = 88172645463325252u64;
    let seq: Vec<u32> = (0..4_000_000).map(|_| (rng(&mut s) % n) as u32).collect();
    for _ in 0..3 {
        let t = Instant::now();
        let mut sum = 0u64;
        for &p in &seq {
            f.read_at(&mut b, (p as u64) * 4096 + (p as u64 & 511) * 8).unwrap();
            sum = sum.wrapping_add(u64::from_le_bytes(b));
        }
        println!("hit uniform {:.2} ns {sum}", t.elapsed().as_nanos() as f64 / seq.len() as f64);
        let t = Instant::now();
        let mut sum = 0u64;
        for &p in &seq {
            let g = f.page(p as u64).unwrap();
            sum = sum.wrapping_add(g[(p as usize & 511) * 8] as u64);
        }
        println!("pin uniform {:.2} ns {sum}", t.elapsed().as_nanos() as f64 / seq.len() as f64);
    }
    let v: Vec<u64> = (0..n * 512).collect();
    for _ in 0..3 {
        let t = Instant::now();
        let mut sum = 0u64;
        for &p in &seq {
            sum = sum.wrapping_add(unsafe { std::ptr::read_volatile(&v[(p as usize) * 512 + (p as usize & 511)]) });
        }
        println!("array {:.2} ns {sum}", t.elapsed().as_nanos() as f64 / seq.len() as f64);
    }
    println!("{}", mm.stats());
    drop(f);
    drop(g);
    drop(mm);
    let mm = Pagefold::builder().memory("128MiB").build().unwrap();
    let g = mm.group("a").build().unwrap();
    let f = g.open(path).unwrap();
    let fd = std::fs::File::open(path).unwrap();
    use std::os::unix::fs::FileExt;
    let mut page = vec![0u8; 4096];
    for _ in 0..3 {
        let t = Instant::now();
        let c = cpu();
        for &p in &seq[..2_000_000] {
            f.read_at(&mut page, (p as u64) * 4096).unwrap();
            assert_eq!(page[0..4], ((p as u64) * 512).to_le_bytes()[..4]);
        }
        println!("miss {:.0} ns wall {:.0} cpu", t.elapsed().as_nanos() as f64 / 2e6, (cpu() - c) * 1e9 / 2e6);
        let t = Instant::now();
        let c = cpu();
        for &p in &seq[..2_000_000] {
            fd.read_at(&mut page, (p as u64) * 4096).unwrap();
            assert_eq!(page[0..4], ((p as u64) * 512).to_le_bytes()[..4]);
        }
        println!("pread {:.0} ns wall {:.0} cpu", t.elapsed().as_nanos() as f64 / 2e6, (cpu() - c) * 1e9 / 2e6);
    }
    println!("{}", mm.stats());
}
fn cpu() -> f64 {
    let s = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    let _ = s;
    let st = std::fs::read_dir("/proc/self/task").unwrap();
    let mut t = 0f64;
    for e in st {
        let x = std::fs::read_to_string(e.unwrap().path().join("schedstat")).unwrap();
        t += x.split(' ').next().unwrap().parse::<f64>().unwrap();
    }
    t / 1e9
}

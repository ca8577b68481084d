//! Counts misses of page-replacement policies. See README.md.
mod adv;
mod base;
mod pagefold;
mod prod;
mod synth;
use base::*;
use std::io::Read;
pub const FIVE: [&str; 5] = ["lru", "arc", "s3", "wtlfu", "lirs"];
pub fn make(name: &str, n: usize, cap: usize) -> Box<dyn Policy> {
    if let Some(s) = name.strip_prefix("prod") { return Box::new(prod::Prod::new(n, cap, s.trim_start_matches(':'))) }
    if let Some(s) = name.strip_prefix("pagefold") { return Box::new(pagefold::Pagefold::new(n, cap, s.trim_start_matches(':'))) }
    match name {
        "lru" => Box::new(Lru::new(n, cap)), "clock" => Box::new(Clock::new(n, cap, 1)), "clock3" => Box::new(Clock::new(n, cap, 3)),
        "sieve" => Box::new(Sieve::new(n, cap)), "arc" => Box::new(Arc::new(n, cap)), "s3" => Box::new(S3::new(n, cap)),
        "wtlfu" => Box::new(Wtlfu::new(n, cap)), "lirs" => Box::new(Lirs::new(n, cap)), "cpro" => Box::new(ClockPro::new(n, cap)),
        _ => panic!("{name}?"),
    }
}
pub fn misses(name: &str, t: &[u32], n: usize, cap: usize) -> u64 {
    if name == "opt" { return opt(t, n, cap) }
    let mut p = make(name, n, cap); t.iter().filter(|&&x| !p.access(x)).count() as u64
}
pub fn load(f: &str) -> (Vec<u32>, usize) {
    let mut s = String::new(); std::fs::File::open(f).unwrap().read_to_string(&mut s).unwrap();
    let t: Vec<u32> = s.lines().map(|l| l.trim().parse().unwrap()).collect();
    let n = *t.iter().max().unwrap() as usize + 1; (t, n)
}
fn main() {
    let a: Vec<String> = std::env::args().collect();
    match a[1].as_str() {
        // count TRACE PAGES POLICY,…
        "count" => { let (t, n) = load(&a[2]); let cap = a[3].parse().unwrap();
            for p in a[4].split(';') { let m = misses(p, &t, n, cap); print!(" {p} {m} {:.1}%", 100. * m as f64 / t.len() as f64) } println!() }
        // eval DIR BEST POLICY…: ratio to the best of five, each case
        "eval" => {
            let best: Vec<(String, usize, f64)> = std::fs::read_to_string(&a[3]).unwrap().lines().map(|l| { let v: Vec<&str> = l.split_whitespace().collect(); (v[0].into(), v[1].parse().unwrap(), v[2].parse().unwrap()) }).collect();
            let verbose = a.len() == 5;
            let mut cache: std::collections::HashMap<String, (Vec<u32>, usize)> = Default::default();
            for pol in &a[4..] {
                let (mut s, mut mx, mut c, mut line) = (0.0, 0.0f64, 0, String::new());
                for (t, cap, b) in &best {
                    let (tr, n) = cache.entry(t.clone()).or_insert_with(|| load(&format!("{}/{t}", a[2])));
                    let mut p = make(pol, *n, *cap); let m = tr.iter().filter(|&&x| !p.access(x)).count() as f64;
                    let r = m / b; s += r; c += 1; mx = mx.max(r);
                    if verbose { println!("{t} {cap} {:.1}% {r:.3}  {}", 100. * m / tr.len() as f64, p.note()) }
                    line += &format!(" {r:.2}");
                }
                println!("{:.4} {:.3} |{line} | {pol}", s / c as f64, mx);
            }
        }
        // zipf N LEN SEEDS POLICY…
        "zipf" => {
            let (n, len, seeds): (usize, usize, u64) = (a[2].parse().unwrap(), a[3].parse().unwrap(), a[4].parse().unwrap());
            let mut sum = vec![(0.0, 0.0f64); a.len()];
            for al in [0.7, 0.9, 0.99, 1.1] { for room in [0.01, 0.1, 0.25] {
                let cap = (n as f64 * room) as usize; let mut rs = vec![0.0; a.len()]; let mut who = String::new();
                for seed in 1..=seeds { let t = synth::zipf(n, al, len, seed * 77);
                    let five: Vec<u64> = FIVE.iter().map(|p| misses(p, &t, n, cap)).collect(); let b = *five.iter().min().unwrap();
                    who = FIVE[five.iter().position(|&x| x == b).unwrap()].into();
                    for (k, p) in a.iter().enumerate().skip(5) { rs[k] += misses(p, &t, n, cap) as f64 / b as f64 / seeds as f64 } }
                print!("{al} {room:5} best {who:6}"); for k in 5..a.len() { print!(" {:.4}", rs[k]); sum[k].0 += rs[k] / 12.0; sum[k].1 = sum[k].1.max(rs[k]) } println!();
            } }
            for k in 5..a.len() { println!("mean {:.4} max {:.4} {}", sum[k].0, sum[k].1, a[k]) }
        }
        // mix B POLICY…: hot set and scan, hot set and loop; alternating phases
        "mix" => {
            let b: usize = a[2].parse().unwrap(); let pols: Vec<&str> = FIVE.iter().copied().chain(a[3..].iter().map(|x| x.as_str())).collect();
            for (name, lp) in [("hot+scan", false), ("hot+loop2B", true)] {
                let mut r = synth::Rng(5); let len = 200 * b;
                let t: Vec<u32> = (0..len).map(|i| if i % 2 == 0 { r.below(b / 2) as u32 } else { b as u32 + (if lp { i / 2 % (2 * b) } else { i / 2 }) as u32 }).collect();
                let n = *t.iter().max().unwrap() as usize + 1; print!("{name:22}");
                for p in &pols { let mut q = make(p, n, b); let (mut h, mut c) = (0, 0); for &x in &t { let hit = q.access(x); if (x as usize) < b { c += 1; h += hit as u64 } } print!(" {:.2}%", 100. * h as f64 / c as f64) } println!();
            }
            let combos: Vec<Vec<&str>> = vec![vec!["loop", "zigzag"], vec!["loop", "drift"], vec!["scanhot", "zigzag"], vec!["zipf", "loop"], vec!["zipf", "drift"], vec!["zipf", "zigzag"], vec!["pairs", "loop"], vec!["pairs", "zipf"], vec!["loop15", "drift"], vec!["scanhot", "drift"]];
            let mut tot = vec![(0.0, 0.0f64); pols.len()];
            for same in [false, true] { for c in &combos {
                let (t, n, cuts) = synth::alternate(c, b, 3, same, 9);
                let per: Vec<Vec<u64>> = pols.iter().map(|p| { let mut q = make(p, n, b); let mut v = vec![0; cuts.len()]; let mut k = 0; for (i, &x) in t.iter().enumerate() { if i == cuts[k] { k += 1 } if !q.access(x) { v[k] += 1 } } v }).collect();
                let best: u64 = (0..cuts.len()).map(|k| (0..5).map(|j| per[j][k]).min().unwrap()).sum();
                print!("{:22}", format!("{}{}", c.join("/"), if same { " same" } else { "" }));
                for (j, p) in per.iter().enumerate() { let x = p.iter().sum::<u64>() as f64 / best as f64; print!(" {x:.3}"); tot[j].0 += x / 20.0; tot[j].1 = tot[j].1.max(x) } println!();
            } }
            for (j, p) in pols.iter().enumerate() { println!("mean {:.3} max {:.3} {p}", tot[j].0, tot[j].1) }
        }
        "flush" => { let b: usize = a[2].parse().unwrap(); let mut r = synth::Rng(5); let hot = b * 3 / 4; let mut t: Vec<u32> = (0..b).map(|i| (10 * b + i) as u32).collect(); t.extend((0..20 * b).map(|_| r.below(hot) as u32)); let s = t.len(); t.extend((0..6 * b).map(|i| (20 * b + i) as u32)); let e = t.len(); t.extend((0..hot).map(|i| i as u32)); let _ = s;
            for p in a[3..].iter() { let mut q = make(p, 30 * b, b); let mut m = 0; for (i, &x) in t.iter().enumerate() { if !q.access(x) && i >= e { m += 1 } } print!(" {p} lost {:.1}%", 100. * m as f64 / hot as f64) } println!() }
        "two" => { let b: usize = a[2].parse().unwrap(); for d in [16usize, 64, 200, b / 4] { let t: Vec<u32> = (0..28 * b).map(|i| ((i / 2 + 2 * b - d * (i % 2)) % (2 * b)) as u32).collect(); print!("d {d}:"); for p in a[3..].iter() { let mut q = make(p, 2 * b, b); let mut m = 0; for (i, &x) in t.iter().enumerate() { if !q.access(x) && i >= 14 * b { m += 1 } } print!(" {p} {:.1}%", 100. * m as f64 / (14 * b) as f64) } println!() } }
        // stk POLICY…: the LRU stack model and zipf that drifts
        "stk" => { let set = friendly(); for p in &a[2..] { for (t, n, cap, best) in &set { print!(" {:.3}", misses(p, t, *n, *cap) as f64 / best) } println!(" {p}") } }
        // adv B HALF SECONDS SEED POLICY
        "adv" => adv::search(&a[6], a[2].parse().unwrap(), a[3] == "1", a[4].parse().unwrap(), a[5].parse().unwrap()),
        _ => {}
    }
}
/// Traces on which LRU is hard to beat, with the misses of the best of the five.
fn friendly() -> Vec<(Vec<u32>, usize, usize, f64)> {
    let stacks = [(3000, 0.02, 0.0, 500), (8000, 0.01, 0.0, 1000), (4000, 0.03, 0.35, 800), (20000, 0.005, 0.2, 2000)].map(|(max, new, th, cap)| (synth::stack(max, new, th, 80_000, 7), cap));
    let drifts = [(10000, 0.9, 5, 1000), (10000, 0.8, 20, 2000), (5000, 1.0, 50, 500)].map(|(n, al, swaps, cap)| (synth::zipfdrift(n, al, swaps, 100_000, 5), cap));
    stacks.into_iter().chain(drifts).map(|(t, cap)| { let n = *t.iter().max().unwrap() as usize + 1; let best = FIVE.iter().map(|p| misses(p, &t, n, cap)).min().unwrap() as f64; (t, n, cap, best) }).collect()
}

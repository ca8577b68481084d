//! Each pair of operations, on lists of 0 to 4 nodes.
//!
//! There are no models with three threads: if two of them wait for the third, loom's exploration
//! never ends. `random_order` covers such cases.
#![cfg(pagefold_loom)]

mod world;

use sync::Arc;
use sync::thread::spawn;
use world::{Op, World};

/// Returns all operations on a list of `len` nodes.
fn operations(len: u32) -> Vec<Op> {
    let mut all = vec![Op::AddHead, Op::AddTail, Op::SpliceHead, Op::SpliceTail];
    if len > 0 {
        all.extend([Op::TakeTail(2), Op::TakeHead(2), Op::Rotate]);
    }
    all.extend((0..len).flat_map(|node| [Op::Del(node), Op::Touch(node), Op::Move(node)]));
    if len < 4 {
        all.extend((0..len).map(Op::Cool));
    }
    all
}

fn moved(ops: &[Op]) -> Vec<u32> {
    let touched = |op: &Op| match *op {
        Op::Touch(node) | Op::Cool(node) | Op::Move(node) => vec![node],
        Op::Rotate => vec![0, 1, 2, 3],
        _ => Vec::new(),
    };
    ops.iter().flat_map(touched).collect()
}

fn together(len: u32, ops: &'static [Op]) {
    sync::model(move || {
        let world = Arc::new(World::new(len, ops.len() as u32));
        let others: Vec<_> = (1..ops.len())
            .map(|thread| {
                let world = Arc::clone(&world);
                spawn("op", move || world.run(ops[thread], thread as u32)).unwrap()
            })
            .collect();
        world.run(ops[0], 0);
        others.into_iter().for_each(|other| other.join().unwrap());
        let mut world = Arc::into_inner(world).unwrap();
        world.check(&format!("{ops:?} on {len}"));
        assert!(world.order(&moved(ops)).is_sorted(), "{ops:?} on {len}: nodes changed their order");
    });
}

fn every_pair(len: u32) {
    let all = operations(len);
    for (at, &first) in all.iter().enumerate() {
        for &second in &all[at..] {
            together(len, Box::leak(Box::new([first, second])));
        }
    }
}

#[test]
fn pairs_on_an_empty_list() {
    every_pair(0);
}

#[test]
fn pairs_on_one_node() {
    every_pair(1);
}

#[test]
fn pairs_on_two_nodes() {
    every_pair(2);
}

#[test]
fn pairs_on_three_nodes() {
    every_pair(3);
}

#[test]
fn pairs_on_four_nodes() {
    every_pair(4);
}

//! One thread: each operation does what it says.
#![cfg(not(any(pagefold_loom, pagefold_manycore)))]

mod world;

use world::{Op, World};

fn after(len: u32, ops: &[Op]) -> Vec<u32> {
    let mut world = World::new(len, ops.len() as u32);
    ops.iter().enumerate().for_each(|(thread, &op)| world.run(op, thread as u32));
    world.check(&format!("{ops:?}"));
    world.all()
}

#[test]
fn each_operation() {
    assert_eq!(after(3, &[]), [0, 1, 2]);
    assert_eq!(after(3, &[Op::Del(0)]), [1, 2]);
    assert_eq!(after(3, &[Op::Del(1)]), [0, 2]);
    assert_eq!(after(3, &[Op::Del(2)]), [0, 1]);
    assert_eq!(after(3, &[Op::Del(1), Op::Del(1)]), [0, 2]);
    assert_eq!(after(1, &[Op::Del(0)]), [0; 0]);
    assert_eq!(after(2, &[Op::AddHead]), [2, 0, 1]);
    assert_eq!(after(0, &[Op::AddHead, Op::AddTail]), [0, 2]);
    assert_eq!(after(2, &[Op::SpliceHead, Op::SpliceTail]), [2, 3, 0, 1, 4, 5]);
    assert_eq!(after(3, &[Op::TakeTail(2)]), [0]);
    assert_eq!(after(3, &[Op::TakeHead(2)]), [2]);
    assert_eq!(after(2, &[Op::TakeTail(9)]), [0; 0]);
    assert_eq!(after(3, &[Op::Touch(1)]), [1, 0, 2]);
    assert_eq!(after(4, &[Op::Rotate]), [3, 2, 0, 1]);
    assert_eq!(after(2, &[Op::Move(0), Op::Move(1), Op::Fetch]), [1]);
}

/// Regression: if `max` was very large, the bound on the number of steps overflowed. So only 30
/// nodes were taken, or none, although the list had more.
#[test]
fn all_nodes_are_taken_if_more_are_asked_for_than_any_list_has() {
    for max in [usize::MAX, 1 << (usize::BITS - 1)] {
        assert_eq!(after(100, &[Op::TakeTail(max)]), [0; 0]);
        assert_eq!(after(100, &[Op::TakeHead(max)]), [0; 0]);
    }
}

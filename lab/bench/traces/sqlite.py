#!/usr/bin/env python3
"""Makes page traces of SQLite on tables like those of TPC-C and TPC-H.

    python3 sqlite.py FOLDER

Writes FOLDER/tpcc.trace and FOLDER/tpch.trace: a page number in each line, in the order in which
SQLite read and wrote pages of 4 KiB. SQLite's own cache has 20 pages, so nearly every access to a
page is a system call, which `strace` reports. Seeds are fixed. Needs `strace`; takes some minutes.

The schemas and the mix of transactions follow the benchmarks of the TPC, but sizes, columns and
queries are reduced. So the figures are not TPC results. Keys are declared as integers: with a key
of no type, SQLite doesn't use the index when it compares the key with an integer of another table.
"""

import random
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

PAGE = 4096
CACHE_PAGES = 20
TRANSACTIONS = 6_000
ITEMS, DISTRICTS, CUSTOMERS = 100_000, 10, 3_000  # CUSTOMERS: of each district.
ORDERS, LINES, ROUNDS = 30_000, 4, 10  # Of TPC-H. LINES: of each order, on average.


def connect(path, cache=CACHE_PAGES):
    db = sqlite3.connect(path, isolation_level=None)
    pragmas = f"page_size={PAGE} journal_mode=off synchronous=off temp_store=memory mmap_size=0 cache_size={cache}"
    for pragma in pragmas.split():
        db.execute(f"pragma {pragma}")
    return db


def text(rng, length):
    return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=length))


def skewed(rng, bits, low, high):
    """TPC-C's NURand: some numbers are drawn more often."""
    return ((rng.randint(0, bits) | rng.randint(low, high)) + 123) % (high - low + 1) + low


def build_tpcc(path):
    rng, db = random.Random(1), connect(path, 10_000)
    db.executescript("""
        create table warehouse (w integer primary key, name, ytd real);
        create table district (d integer primary key, name, ytd real, next_order integer);
        create table item (i integer primary key, name, price real, data);
        create table stock (i integer primary key, quantity integer, dist, ytd, orders, data);
        create table customer (c integer primary key, d integer, last, first, balance real, payments, data);
        create index customer_name on customer (d, last, first);
        create table orders (o integer primary key, d integer, number integer, c integer, lines, carrier);
        create index order_customer on orders (c, number);
        create table order_line (o integer, line integer, i integer, quantity, amount real, delivered, dist,
                                 primary key (o, line)) without rowid;
        create table new_order (d integer, number integer, o integer, primary key (d, number)) without rowid;
        create table history (c integer, d integer, amount real, data);
    """)
    db.execute("begin")
    pad = text(rng, 300)
    db.execute("insert into warehouse values (1, 'w', 0)")
    for item in range(1, ITEMS + 1):
        db.execute("insert into item values (?, ?, ?, ?)", (item, pad[:24], rng.uniform(1, 100), pad[:50]))
        db.execute("insert into stock values (?, ?, ?, 0, 0, ?)", (item, rng.randint(10, 100), pad[:240], pad[:50]))
    order = 0
    for district in range(1, DISTRICTS + 1):
        db.execute("insert into district values (?, 'd', 0, ?)", (district, CUSTOMERS + 1))
        for customer in range(1, CUSTOMERS + 1):
            number, last = (district - 1) * CUSTOMERS + customer, f"name{skewed(rng, 255, 0, 999)}"
            row = (number, district, last, text(rng, 12), -10, 2 * pad[:250])
            db.execute("insert into customer values (?, ?, ?, ?, ?, 1, ?)", row)
        for number in range(1, CUSTOMERS + 1):
            order, lines = order + 1, rng.randint(5, 15)
            customer = (district - 1) * CUSTOMERS + rng.randint(1, CUSTOMERS)
            db.execute("insert into orders values (?, ?, ?, ?, ?, 1)", (order, district, number, customer, lines))
            for line in range(lines):
                row = (order, line, rng.randint(1, ITEMS), 5, rng.uniform(1, 100), 1, pad[:24])
                db.execute("insert into order_line values (?, ?, ?, ?, ?, ?, ?)", row)
            if number > CUSTOMERS * 7 // 10:
                db.execute("insert into new_order values (?, ?, ?)", (district, number, order))
    db.execute("commit")


def run_tpcc(path):
    rng, db = random.Random(2), connect(path)
    run = db.execute
    last_order = run("select max(o) from orders").fetchone()[0]

    def customer_of(district):
        if rng.random() < 0.6:
            last = f"name{skewed(rng, 255, 0, 999)}"
            found = run("select c, balance, data from customer where d = ? and last = ? order by first", (district, last))
            rows = found.fetchall()
            if rows:
                return rows[len(rows) // 2][0]
        number = (district - 1) * CUSTOMERS + skewed(rng, 1023, 1, CUSTOMERS)
        run("select balance, data from customer where c = ?", (number,)).fetchone()
        return number

    def order_new(district):
        nonlocal last_order
        customer = (district - 1) * CUSTOMERS + skewed(rng, 1023, 1, CUSTOMERS)
        run("select last, balance from customer where c = ?", (customer,)).fetchone()
        number = run("select next_order from district where d = ?", (district,)).fetchone()[0]
        run("update district set next_order = ? where d = ?", (number + 1, district))
        last_order, lines = last_order + 1, rng.randint(5, 15)
        run("insert into orders values (?, ?, ?, ?, ?, null)", (last_order, district, number, customer, lines))
        run("insert into new_order values (?, ?, ?)", (district, number, last_order))
        for line in range(lines):
            item = skewed(rng, 8191, 1, ITEMS)
            price = run("select price, name, data from item where i = ?", (item,)).fetchone()[0]
            dist = run("select quantity, dist from stock where i = ?", (item,)).fetchone()[1]
            run("update stock set quantity = quantity - 1, ytd = ytd + 1, orders = orders + 1 where i = ?", (item,))
            row = (last_order, line, item, 1, price, None, dist[:24])
            run("insert into order_line values (?, ?, ?, ?, ?, ?, ?)", row)

    def pay(district):
        amount = rng.uniform(1, 5000)
        run("update warehouse set ytd = ytd + ?", (amount,))
        run("update district set ytd = ytd + ? where d = ?", (amount, district))
        customer = customer_of(district)
        run("update customer set balance = balance - ?, payments = payments + 1 where c = ?", (amount, customer))
        run("insert into history values (?, ?, ?, 'payment')", (customer, district, amount))

    def order_status(district):
        found = run("select o from orders where c = ? order by number desc limit 1", (customer_of(district),)).fetchone()
        if found:
            run("select i, quantity, amount from order_line where o = ?", found).fetchall()

    def deliver(_):
        for district in range(1, DISTRICTS + 1):
            oldest = "select number, o from new_order where d = ? order by number limit 1"
            found = run(oldest, (district,)).fetchone()
            if found:
                run("delete from new_order where d = ? and number = ?", (district, found[0]))
                customer = run("select c from orders where o = ?", found[1:]).fetchone()[0]
                run("update orders set carrier = 2 where o = ?", found[1:])
                run("update order_line set delivered = 2 where o = ?", found[1:])
                amount = run("select sum(amount) from order_line where o = ?", found[1:]).fetchone()[0]
                run("update customer set balance = balance + ? where c = ?", (amount, customer))

    def stock_level(district):
        run("""select count(distinct s.i) from orders o join order_line l on l.o = o.o join stock s on s.i = l.i
               where o.o > (select max(o) from orders) - 200 and o.d = ? and s.quantity < 15""", (district,)).fetchall()

    mix = [order_new] * 45 + [pay] * 43 + [order_status] * 4 + [deliver] * 4 + [stock_level] * 4
    for _ in range(TRANSACTIONS):
        run("begin")
        rng.choice(mix)(rng.randint(1, DISTRICTS))
        run("commit")


def build_tpch(path):
    rng, db = random.Random(3), connect(path, 10_000)
    db.executescript("""
        create table customer (c integer primary key, name, nation, segment, balance real, comment);
        create table part (p integer primary key, name, brand, size, price real, comment);
        create table supplier (s integer primary key, name, nation, balance real, comment);
        create table partsupp (p integer, s integer, quantity, cost real, comment, primary key (p, s)) without rowid;
        create table orders (o integer primary key, c integer, day, priority, total real, comment);
        create index orders_customer on orders (c);
        create table lineitem (o integer, line integer, p integer, s integer, quantity, price real, discount real, shipped,
                               received, flag, mode, comment, primary key (o, line)) without rowid;
        create index lineitem_part on lineitem (p);
    """)
    db.execute("begin")
    pad = text(rng, 200)
    for number in range(1, ORDERS // 10 + 1):
        row = (number, pad[:18], rng.randint(0, 24), rng.randint(0, 4), rng.uniform(-999, 9999), pad[:70])
        db.execute("insert into customer values (?, ?, ?, ?, ?, ?)", row)
    parts, suppliers = ORDERS // 8, ORDERS // 150
    for number in range(1, suppliers + 1):
        row = (number, pad[:18], rng.randint(0, 24), rng.uniform(-999, 9999), pad[:60])
        db.execute("insert into supplier values (?, ?, ?, ?, ?)", row)
    for number in range(1, parts + 1):
        row = (number, pad[:32], rng.randint(0, 24), rng.randint(1, 50), rng.uniform(900, 2000), pad[:15])
        db.execute("insert into part values (?, ?, ?, ?, ?, ?)", row)
        for supplier in rng.sample(range(1, suppliers + 1), 4):
            row = (number, supplier, rng.randint(1, 9999), rng.uniform(1, 1000), pad[:120])
            db.execute("insert into partsupp values (?, ?, ?, ?, ?)", row)
    for number in range(1, ORDERS + 1):
        day = rng.randint(0, 2400)
        row = (number, rng.randint(1, ORDERS // 10), day, rng.randint(1, 5), rng.uniform(1e3, 4e5), pad[:50])
        db.execute("insert into orders values (?, ?, ?, ?, ?, ?)", row)
        for line in range(rng.randint(1, 2 * LINES - 1)):
            shipped = day + rng.randint(1, 120)
            row = (number, line, rng.randint(1, parts), rng.randint(1, suppliers), rng.randint(1, 50))
            row += (rng.uniform(900, 1e5), rng.randint(0, 10) / 100, shipped, shipped + rng.randint(1, 30))
            row += (rng.choice("RAN"), rng.randint(0, 6), pad[:27])
            db.execute("insert into lineitem values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    db.execute("commit")


QUERIES = [  # After TPC-H's queries 1, 3, 4, 6, 12, 14, 17 and 18.
    "select flag, sum(quantity), sum(price), avg(discount), count(*) from lineitem where shipped < 2300 group by flag",
    """select l.o, sum(l.price * (1 - l.discount)) r from customer c join orders o on o.c = c.c join lineitem l on l.o = o.o
       where c.segment = 1 and o.day < 1200 and l.shipped > 1200 group by l.o order by r desc limit 10""",
    """select priority, count(*) from orders o where day between 1000 and 1090 and exists
       (select 1 from lineitem l where l.o = o.o and l.shipped < l.received - 5) group by priority""",
    "select sum(price * discount) from lineitem where shipped between 800 and 1165 and discount > 0.05 and quantity < 24",
    """select mode, count(*) from lineitem l join orders o on o.o = l.o where l.mode in (1, 2)
       and l.received between 800 and 1165 group by mode""",
    """select sum(l.price) from lineitem l join part p on p.p = l.p where l.shipped between 900 and 930
       and p.brand < 5""",
    """select sum(l.price) / 7 from part p join lineitem l on l.p = p.p where p.brand = 3 and p.size < 5 and l.quantity <
       (select 0.2 * avg(quantity) from lineitem x where x.p = p.p)""",
    """select c.name, o.o, sum(l.quantity) q from customer c join orders o on o.c = c.c join lineitem l on l.o = o.o
       where c.nation < 6 group by o.o having q > 250 order by o.total desc limit 100""",
]


def run_tpch(path):
    rng, db = random.Random(4), connect(path)
    for _ in range(ROUNDS):
        for query in rng.sample(QUERIES, len(QUERIES)):
            db.execute(query).fetchall()


def trace(folder, name):
    """Runs the benchmark in a traced process, and writes its page numbers."""
    database, log, target = (folder / f"{name}.{kind}" for kind in ["db", "strace", "trace"])
    database.unlink(missing_ok=True)
    BENCHMARKS[name][0](str(database))
    calls = ["strace", "-f", "-y", "-e", "trace=pread64,pwrite64", "-s", "0", "-o", str(log)]
    subprocess.run([*calls, sys.executable, __file__, "--run", name, str(database)], check=True)
    call = re.compile(r"p(?:read|write)64\(\d+<([^>]*)>, .*, (\d+), (\d+)\)")
    accesses = 0
    with open(log) as lines, open(target, "w") as out:
        for found in filter(None, map(call.search, lines)):
            path, length, offset = found[1], int(found[2]), int(found[3])
            # The first bytes of the file are its change counter, which each transaction reads.
            if path == str(database.resolve()) and length == PAGE:
                out.write(f"{offset // PAGE}\n")
                accesses += 1
    pages = database.stat().st_size // PAGE
    log.unlink()
    database.unlink()
    print(f"{target}: {accesses} accesses to {pages} pages")


BENCHMARKS = {"tpcc": (build_tpcc, run_tpcc), "tpch": (build_tpch, run_tpch)}


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--run", name, path]:
            BENCHMARKS[name][1](path)
        case [folder] if not folder.startswith("-"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            for benchmark in BENCHMARKS:
                trace(Path(folder), benchmark)
        case _:
            sys.exit(__doc__)

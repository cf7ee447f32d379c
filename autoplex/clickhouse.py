"""Runs queries of `mendcast-autoplex sql` on chDB (in-process ClickHouse) and writes CSV.

    python3 clickhouse.py --view sessions=OUT/sessions --query band.sql band.csv

A view is a directory of Parquet files, or one file.
"""

import argparse
from pathlib import Path

from chdb.session import Session


def main():
    parser = argparse.ArgumentParser(description="Run SQL files over Parquet files.")
    parser.add_argument("--view", action="append", required=True, metavar="NAME=PATH")
    parser.add_argument("--query", action="append", required=True, nargs=2, metavar=("SQL", "CSV"))
    args = parser.parse_args()
    session = Session()
    for view in args.view:
        name, path = view.split("=", 1)
        files = f"{path}/**/*.parquet" if Path(path).is_dir() else path
        session.query(f"CREATE VIEW {name} AS SELECT * FROM file('{files}', Parquet)")
    for sql, csv in args.query:
        found = session.query(Path(sql).read_text(encoding="utf-8"), "CSVWithNames")
        Path(csv).write_text(str(found).replace('"', ""), encoding="utf-8")
    session.close()


if __name__ == "__main__":
    main()

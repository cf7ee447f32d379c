"""Runs queries of `mendcast-autoplex sql` on Spark and writes CSV.

    spark-submit --master URL spark.py --view sessions=OUT/sessions --query band.sql band.csv

A view is a directory of Parquet files, or one file. Results have a row per group or bin, and must
fit the driver's memory.
"""

import argparse

from pyspark.sql import SparkSession


def main():
    parser = argparse.ArgumentParser(description="Run SQL files over Parquet files.")
    parser.add_argument("--view", action="append", required=True, metavar="NAME=PATH")
    parser.add_argument("--query", action="append", required=True, nargs=2, metavar=("SQL", "CSV"))
    args = parser.parse_args()
    spark = SparkSession.builder.appName("mendcast-autoplex").getOrCreate()
    for view in args.view:
        name, path = view.split("=", 1)
        reader = spark.read.option("recursiveFileLookup", "true")
        reader.parquet(path).createOrReplaceTempView(name)
    for sql, csv in args.query:
        with open(sql, encoding="utf-8") as file:
            found = spark.sql(file.read())
        rows = found.collect()
        with open(csv, "w", encoding="utf-8") as out:
            out.write(",".join(found.columns) + "\n")
            out.writelines(",".join(map(str, row)) + "\n" for row in rows)
    spark.stop()


if __name__ == "__main__":
    main()
